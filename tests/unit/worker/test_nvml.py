"""NVIDIA devices by NVML, with a library made up for the purpose: two GPUs, the second cut into two MIG instances."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from queue_rows import Queue
from sqlalchemy import select

from server.db.engine import Database
from server.db.tables import DeviceReading
from worker.accelerators import unused_accelerators
from worker.devices import inventory, visible_gpus
from worker.nvml import Nvml, open_nvml, throttling
from worker.readings import Devices, cpu_reading, store_readings

GIB = 2**30


class Answer:
    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


class FakeNvml:
    """What `pynvml` offers, over handles that are plain names; what a MIG instance does not tell raises."""

    NVML_TEMPERATURE_GPU, NVML_CLOCK_SM = 0, 1

    class NVMLError(Exception):
        pass

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:  # noqa: N802
        return f"gpu{index}"

    def nvmlDeviceGetUUID(self, handle: str) -> bytes:  # noqa: N802
        return {"gpu0": b"GPU-0", "gpu1": b"GPU-1", "mig0": b"MIG-a", "mig1": b"MIG-b"}[handle]

    def nvmlDeviceGetName(self, handle: str) -> str:  # noqa: N802
        return f"NVIDIA {handle}"

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> Answer:  # noqa: N802
        total = 10 * GIB if handle.startswith("mig") else 80 * GIB
        return Answer(total=total, used=4 * GIB, free=total - 4 * GIB)

    def nvmlDeviceGetCudaComputeCapability(self, handle: str) -> tuple[int, int]:  # noqa: N802
        if handle.startswith("mig"):
            raise self.NVMLError("not supported")
        return (8, 0) if handle == "gpu0" else (9, 0)

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        return "570.1"

    def nvmlDeviceGetMigMode(self, handle: str) -> list[int]:  # noqa: N802
        if handle == "gpu0":
            raise self.NVMLError("not supported")
        return [1, 1]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: str) -> int:  # noqa: N802
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: str, number: int) -> str:  # noqa: N802
        if number > 1:
            raise self.NVMLError("not found")
        return f"mig{number}"

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Answer:  # noqa: N802
        if handle.startswith("mig"):
            raise self.NVMLError("not supported")
        return Answer(gpu=43)

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:  # noqa: N802
        return 301_500

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int) -> int:  # noqa: N802
        return 61

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:  # noqa: N802
        return 0x4 | 0x40 | 0x1  # the last is idleness, which slows nobody


@pytest.fixture
def nvml() -> Nvml:
    return Nvml(FakeNvml())


def test_gpus_and_mig_instances_become_slots_with_their_abilities(nvml: Nvml) -> None:
    slots = inventory(1, nvml)
    assert [slot.device for slot in slots] == ["cuda:0", "cuda:1.0", "cuda:1.1", "cpu"]
    whole, part = slots[0].description, slots[1].description
    assert (whole["uuid"], whole["memory_bytes"], whole["abilities"]) == (
        "GPU-0", 80 * GIB, ["fp16_tensor_cores", "bf16", "tf32"],
    )  # fmt: skip
    assert (part["uuid"], part["memory_bytes"], part["mig"]) == ("MIG-a", 10 * GIB, True)
    assert "fp8" in part["abilities"], "an instance computes what its GPU computes"
    assert slots[1].kind == "cuda"


def test_the_worker_keeps_to_the_devices_it_was_given(nvml: Nvml) -> None:
    gpus = nvml.devices()
    assert [gpu["device"] for gpu in visible_gpus(gpus, "0")] == ["cuda:0"]
    assert [gpu["device"] for gpu in visible_gpus(gpus, "MIG-b,GPU-0")] == ["cuda:0", "cuda:1.1"]
    assert visible_gpus(gpus, "") == []


def test_a_reading_holds_what_the_device_tells(nvml: Nvml) -> None:
    devices = Devices(inventory(1, nvml), nvml)
    read = devices.readings()
    assert read["cuda:0"] == {
        "utilisation": 0.43, "memory_used_bytes": 4 * GIB, "memory_free_bytes": 76 * GIB, "power_w": 301.5,
        "temperature_c": 61, "throttled": ["power cap", "hot (hardware)"],
    }  # fmt: skip
    assert "utilisation" not in read["cuda:1.0"]
    slots = inventory(1, nvml)
    assert devices.free_bytes(slots[:2]) == {"cuda:0": 76 * GIB, "cuda:1.0": 6 * GIB}
    assert 0 <= cpu_reading()["utilisation"] <= 1
    assert throttling(0) == []


def test_without_the_package_or_a_driver_there_is_no_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoDriver(FakeNvml):
        def nvmlInit(self) -> None:  # noqa: N802
            raise self.NVMLError("driver not loaded")

    for module in (None, NoDriver()):  # None in sys.modules is a package that is not installed
        monkeypatch.setitem(sys.modules, "pynvml", module)
        assert open_nvml() is None


def test_readings_are_kept_for_an_hour(database: Database) -> None:
    now = datetime(2026, 1, 1, 12, tzinfo=UTC)
    with database.write() as session:
        Queue(session)
        for minutes in (-90, -30, 0):
            store_readings(session, 1, {"cpu": {"utilisation": 0.5}, "cuda:0": {}}, now + timedelta(minutes=minutes))
        kept = session.scalars(select(DeviceReading).order_by(DeviceReading.at)).all()
    assert [(reading.device, reading.at) for reading in kept] == [("cpu", now - timedelta(minutes=30)), ("cpu", now)]


def test_accelerators_that_runs_cannot_use_are_named_with_the_reason(tmp_path: Any) -> None:
    amd, intel, nvidia = "0x1002", "0x8086", "0x10de"
    cards = ((amd, "0x038000"), (intel, "0x030000"), (intel, "0x038000"), (nvidia, "0x030200"))
    for number, (vendor, device_class) in enumerate(cards):
        folder = tmp_path / "pci" / f"0000:{number}"
        folder.mkdir(parents=True)
        for file, content in (("vendor", vendor), ("class", device_class), ("device", "0x74a1")):
            (folder / file).write_text(f"{content}\n")
    found = unused_accelerators(tmp_path / "pci", tmp_path / "kfd")
    assert [(entry["kind"], entry["slots"]) for entry in found] == [("rocm", 0), ("xpu", 0)]
    assert found[0]["unused"] == "runs are not started on ROCm; its compute driver (/dev/kfd) is not loaded either"
    assert unused_accelerators(tmp_path / "nowhere") == []
