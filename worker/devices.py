"""What this host can compute on, found without importing torch: its CPU, and CUDA devices by ``nvidia-smi``."""

from __future__ import annotations

import csv
import logging
import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from worker.slots import Slot

QUERY_TIMEOUT_S = 10.0
CPU_ABILITIES = ("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_fp16", "amx_int8", "bf16", "fphp")
# The last two are Arm's: BF16 instructions, and half-precision arithmetic.

_log = logging.getLogger(__name__)


def inventory(num_cpu_slots: int) -> list[Slot]:
    """The slots of this host, GPUs first: one per CUDA device, and ``num_cpu_slots`` that share the CPU."""
    gpus = [Slot(number=number, device=f"cuda:{gpu['index']}", description=gpu) for number, gpu in enumerate(_gpus())]
    cpu = cpu_description()
    cpus = [Slot(number=len(gpus) + number, device="cpu", description=cpu) for number in range(num_cpu_slots)]
    return gpus + cpus


def describe_devices(slots: list[Slot]) -> list[dict[str, Any]]:
    """The devices behind the slots, each once, with the number of its slots."""
    descriptions: dict[str, dict[str, Any]] = {}
    for slot in slots:
        shown = descriptions.setdefault(slot.device, {**slot.description, "slots": 0})
        shown["slots"] += 1
    return list(descriptions.values())


def free_memory(slots: Sequence[Slot]) -> dict[str, int]:
    """Bytes that are free now on the devices of these slots, by device; those that cannot be asked are left out."""
    free: dict[str, int] = {}
    for slot in slots:
        if slot.device not in free and slot.kind == "cpu":
            free[slot.device] = psutil.virtual_memory().available
    return free


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
        major = int(capability.partition(".")[0]) if capability[:1].isdigit() else 0
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
                "abilities": _gpu_abilities(major, capability),
            }
        )
    return gpus


def _gpu_abilities(major: int, capability: str) -> list[str]:
    """By compute capability: tensor cores from 7.0, bf16 and TF32 from 8.0, fp8 from 8.9."""
    rules = {"fp16_tensor_cores": major >= 7, "bf16": major >= 8, "tf32": major >= 8}
    rules["fp8"] = major >= 9 or capability == "8.9"
    return [ability for ability, there in rules.items() if there]
