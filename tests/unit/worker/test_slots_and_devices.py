"""Slots are exclusive; devices are found without torch."""

from __future__ import annotations

from pathlib import Path

import pytest

from worker.devices import cpu_description, describe_devices, inventory, parse_gpus
from worker.launchers import visible_devices
from worker.slots import Slot, SlotPool

CPU = Slot(number=2, device="cpu")
GPUS = [Slot(number=0, device="cuda:0"), Slot(number=1, device="cuda:1")]

LISTING = """\
0, NVIDIA H200, GPU-aaaa, 143771, 9.0, 570.1
1, Tesla T4, GPU-bbbb, 15360, 7.5, 570.1
2, NVIDIA L4, GPU-cccc, 23034, 8.9, 570.1
"""


def test_slots_are_taken_by_device_and_given_back_in_order() -> None:
    pool = SlotPool([*GPUS, CPU])
    assert pool.take(["cuda:1", "cuda:0"]) == (GPUS[1], GPUS[0])
    assert pool.free() == [CPU]
    assert pool.take(["cpu"]) == (CPU,)
    assert pool.free() == []
    pool.give_back([GPUS[1], GPUS[0]])
    assert pool.free() == GPUS
    with pytest.raises(ValueError, match="at least one slot"):
        SlotPool([])


def test_a_run_sees_its_own_devices_only() -> None:
    gpus = [Slot(number=n, device=f"cuda:{n}", description={"uuid": f"GPU-{n}"}) for n in range(2)]
    assert visible_devices(gpus[1:]) == "GPU-1"
    assert visible_devices(gpus) == "GPU-0,GPU-1"
    assert visible_devices([CPU]) == "", "a run on the CPU sees no GPU"


def test_abilities_come_from_the_instruction_sets(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(
        "processor\t: 0\nmodel name\t: Xeon 9\nflags\t\t: fpu avx2 avx512f avx512_bf16 amx_bf16 sse\n\nprocessor\t: 1\n"
    )
    description = cpu_description(cpuinfo)
    assert description["name"] == "Xeon 9"
    assert description["abilities"] == ["avx2", "avx512f", "avx512_bf16", "amx_bf16"]
    assert description["cores"] >= 1
    assert cpu_description(tmp_path / "none")["abilities"] == []


def test_gpus_are_read_with_what_their_precision_needs() -> None:
    h200, t4, l4 = parse_gpus(LISTING)
    assert h200["abilities"] == ["fp16_tensor_cores", "bf16", "tf32", "fp8"]
    assert t4["abilities"] == ["fp16_tensor_cores"]
    assert l4["abilities"] == ["fp16_tensor_cores", "bf16", "tf32", "fp8"]
    assert (t4["device"], t4["memory_bytes"]) == ("cuda:1", 15360 * 1024 * 1024)
    assert [gpu["index"] for gpu in parse_gpus(LISTING, "GPU-cccc,0")] == [0, 2]
    assert parse_gpus("No devices were found\n") == []


def test_the_store_shows_each_device_once() -> None:
    slots = inventory(3)
    shown = describe_devices(slots)
    assert shown[-1]["kind"] == "cpu"
    assert shown[-1]["slots"] == 3
