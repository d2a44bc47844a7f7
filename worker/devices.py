"""What this host can compute on, found without importing torch: its CPU, and CUDA devices by NVML or ``nvidia-smi``."""

from __future__ import annotations

import csv
import logging
import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

import psutil

from worker.abilities import gpu_abilities
from worker.accelerators import unused_accelerators
from worker.nvml import Nvml
from worker.slots import Slot

QUERY_TIMEOUT_S = 10.0
CPU_ABILITIES = ("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_fp16", "amx_int8", "bf16", "fphp")
# The last two are Arm's: BF16 instructions, and half-precision arithmetic.

_log = logging.getLogger(__name__)


def inventory(num_cpu_slots: int, nvml: Nvml | None = None) -> list[Slot]:
    """The slots of this host, GPUs first: one per CUDA device, and ``num_cpu_slots`` that share the CPU."""
    found = visible_gpus(nvml.devices()) if nvml is not None else _gpus()
    gpus = [Slot(number=number, device=gpu["device"], description=gpu) for number, gpu in enumerate(found)]
    cpu = cpu_description()
    cpus = [Slot(number=len(gpus) + number, device="cpu", description=cpu) for number in range(num_cpu_slots)]
    return gpus + cpus


def visible_gpus(gpus: list[dict[str, Any]], visible: str | None = None) -> list[dict[str, Any]]:
    """Those that CUDA_VISIBLE_DEVICES lets this worker use, by index or UUID; all where it is not set."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES") if visible is None else visible
    if visible is None:
        return gpus
    chosen = set(visible.split(","))
    return [gpu for gpu in gpus if chosen & ({gpu["uuid"]} if gpu.get("mig") else {str(gpu["index"]), gpu["uuid"]})]


def describe_devices(slots: list[Slot]) -> list[dict[str, Any]]:
    """The devices behind the slots, each once, with the number of its slots; then accelerators that are not used."""
    descriptions: dict[str, dict[str, Any]] = {}
    for slot in slots:
        shown = descriptions.setdefault(slot.device, {**slot.description, "slots": 0})
        shown["slots"] += 1
    return [*descriptions.values(), *unused_accelerators()]


def num_cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_description(cpuinfo: Path = Path("/proc/cpuinfo")) -> dict[str, Any]:
    """Name, cores, memory and the instruction sets that matter to mixed precision."""
    fields = _cpuinfo(cpuinfo)
    flags = set((fields.get("flags") or fields.get("features") or "").split())
    return {
        "kind": "cpu",
        "device": "cpu",
        "name": fields.get("model name") or platform.processor() or platform.machine(),
        "cores": num_cores(),
        "memory_bytes": psutil.virtual_memory().total,
        "abilities": [ability for ability in CPU_ABILITIES if ability in flags],
    }


def _cpuinfo(path: Path) -> dict[str, str]:
    """The fields of the first core, with lower-case names; empty where there is no such file."""
    try:
        first = path.read_text(errors="replace").split("\n\n")[0]
    except OSError:
        return {}
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def _gpus() -> list[dict[str, Any]]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    fields = "index,name,uuid,memory.total,compute_cap,driver_version"
    command = [program, f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=QUERY_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        _log.warning("nvidia-smi did not list the GPUs (%s): this worker offers its CPU only", error)
        return []
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return parse_gpus(answer.stdout, visible)


def parse_gpus(listing: str, visible: str | None = None) -> list[dict[str, Any]]:
    """The devices in ``nvidia-smi``'s comma-separated listing, those in ``CUDA_VISIBLE_DEVICES`` where it is set."""
    gpus = []
    for row in csv.reader(listing.splitlines(), skipinitialspace=True):
        if len(row) != 6:
            continue
        index, name, uuid, memory_mib, capability, driver = (cell.strip() for cell in row)
        if visible is not None and not {index, uuid} & set(visible.split(",")):
            continue
        major, minor = (int(part) for part in capability.split(".")) if capability[:1].isdigit() else (0, 0)
        gpus.append(
            {
                "kind": "cuda",
                "device": f"cuda:{index}",
                "index": int(index),
                "uuid": uuid,
                "name": name,
                "memory_bytes": int(memory_mib) * 1024 * 1024 if memory_mib.isdigit() else None,
                "compute_capability": capability,
                "driver": driver,
                "abilities": gpu_abilities(major, minor),
            }
        )
    return gpus
