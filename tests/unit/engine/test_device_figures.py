"""Peaks, rates and what NVML tells, with a stub in NVML's place."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from amp_core.events import Column, Segment
from amp_core.telemetry import device as device_module
from amp_core.telemetry.device import DeviceGauge
from amp_core.telemetry.memory import bytes_by_part
from amp_core.telemetry.peaks import Peak, peak_of, published
from amp_core.telemetry.rates import ideal_s, with_rates
from amp_core.telemetry.recorder import Recorder


def points(recorder: Recorder) -> dict[str, list[float]]:
    segment = recorder.segment()
    columns = segment.columns if segment is not None else []
    return {column.name: np.frombuffer(column.values, dtype="<f8").tolist() for column in columns}


class NotSupported(Exception):
    pass


def refuse(*_: Any) -> Any:
    raise NotSupported


def stub(**changes: Any) -> SimpleNamespace:
    """NVML of a device that draws 250 W, has used 9 kJ since its driver came up, and 1 kJ more at each look."""
    energy = iter(range(9_000_000, 99_000_000, 1_000_000))
    return SimpleNamespace(
        **{
            "NVML_TEMPERATURE_GPU": 0,
            "NVML_CLOCK_SM": 1,
            "NVML_CLOCK_MEM": 2,
            "nvmlDeviceGetPowerUsage": lambda _h: 250_000,
            "nvmlDeviceGetTotalEnergyConsumption": lambda _h: next(energy),
            "nvmlDeviceGetTemperature": lambda _h, _kind: 61,
            "nvmlDeviceGetClockInfo": lambda _h, kind: {1: 1410, 2: 1593}[kind],
            "nvmlDeviceGetUtilizationRates": lambda _h: SimpleNamespace(gpu=87, memory=40),
            "nvmlDeviceGetMemoryInfo": lambda _h: SimpleNamespace(used=2**30),
            **changes,
        }
    )


def test_figures_come_in_si_units_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(device_module.time, "monotonic", lambda: now[0])
    gauge, recorder = DeviceGauge(stub(), object()), Recorder()
    gauge.add_to(recorder, 5)
    assert points(recorder) == {
        "device/power_w": [250.0],
        "device/energy_j": [1000.0],
        "device/temperature_c": [61.0],
        "device/clock_sm_hz": [1.41e9],
        "device/clock_memory_hz": [1.593e9],
        "device/utilisation": [0.87],
        "device/memory_used_bytes": [float(2**30)],
    }
    now[0] += 0.9
    gauge.add_to(recorder, 6)
    assert points(recorder) == {}
    now[0] += 0.2
    gauge.add_to(recorder, 7)
    assert points(recorder)["device/energy_j"] == [2000.0]


def test_what_a_device_does_not_tell_is_absent() -> None:
    gauge, recorder = DeviceGauge(stub(nvmlDeviceGetTotalEnergyConsumption=refuse), object()), Recorder()
    gauge.add_to(recorder, 1)
    found = points(recorder)
    assert "device/energy_j" not in found
    assert found["device/power_w"] == [250.0]


def test_a_reading_that_fails_later_leaves_a_gap() -> None:
    nvml = stub()
    gauge, recorder = DeviceGauge(nvml, object()), Recorder()
    nvml.nvmlDeviceGetPowerUsage = refuse
    gauge.add_to(recorder, 1)
    assert "device/power_w" not in points(recorder)


def test_without_nvml_or_without_a_gpu_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)  # an import of it fails
    recorder = Recorder()
    for name in ("cpu", "cuda"):
        DeviceGauge.of(torch.device(name)).add_to(recorder, 1)
    assert points(recorder) == {}


def test_a_device_is_found_by_its_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    nvml = stub(nvmlInit=lambda: None, nvmlDeviceGetHandleByUUID=asked.append)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _device: SimpleNamespace(uuid="0123-ab"))
    DeviceGauge.of(torch.device("cuda", 1))
    assert asked == ["GPU-0123-ab"]


@pytest.mark.parametrize(
    ("name", "bf16"),
    [
        ("NVIDIA A100-SXM4-40GB", 312e12),
        ("NVIDIA H100 80GB HBM3", 989.4e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA L4", 121e12),
        ("NVIDIA L40S", 362e12),
        ("NVIDIA GeForce RTX 4090", 165.2e12),
    ],
)
def test_published_peaks_are_dense_and_name_their_source(name: str, bf16: float) -> None:
    peak = published(name)
    assert peak is not None
    assert peak.flops_per_s["bfloat16"] == bf16
    assert "NVIDIA" in peak.source


@pytest.mark.parametrize("name", ["NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA GeForce RTX 4090 Laptop GPU", "Some GPU"])
def test_no_peak_is_guessed(name: str) -> None:
    assert published(name) is None


def test_a_cpu_is_measured_in_the_types_that_ran() -> None:
    peak = peak_of(torch.device("cpu"), ["float32", "float16"])
    assert peak is not None
    assert set(peak.flops_per_s) == {"float32"}
    assert peak.flops_per_s["float32"] > 1e8
    assert "512" in peak.source


PEAK = Peak(flops_per_s={"float32": 1e12, "bfloat16": 4e12}, source="made up")


def segment_of(*times: float) -> Segment:
    steps = np.arange(3, 3 + len(times), dtype="<i8").tobytes()
    values = np.asarray(times, dtype="<f8").tobytes()
    return Segment(columns=[Column(name="perf/step_time_s", steps=steps, values=values, times=values)])


def test_utilisation_is_the_ideal_time_by_the_real_one() -> None:
    flops = {"float32": 10**10, "bfloat16": 2 * 10**10}
    assert ideal_s(flops, PEAK) == pytest.approx(0.015)
    added = with_rates(segment_of(0.02, 0.04), flops, PEAK).columns[1:]
    found = {column.name: np.frombuffer(column.values, dtype="<f8")[0] for column in added}
    assert found == {"perf/tflops_per_s": pytest.approx(1.0), "perf/mfu": pytest.approx(0.5)}
    assert {np.frombuffer(column.steps, dtype="<i8")[0] for column in added} == {4}


def test_without_a_peak_there_is_no_utilisation() -> None:
    names = [column.name for column in with_rates(segment_of(0.5), {"float16": 5}, PEAK).columns]
    assert names == ["perf/step_time_s", "perf/tflops_per_s"]
    assert with_rates(segment_of(), {"float16": 5}, None) == segment_of()
    assert with_rates(Segment(columns=[]), {"float16": 5}, PEAK).columns == []
    assert with_rates(segment_of(1.0), {}, PEAK) == segment_of(1.0)


def test_fp8_is_one_type_of_several_names() -> None:
    assert ideal_s({"float8_e4m3fn": 5}, Peak(flops_per_s={"float8": 5.0}, source="")) == 1.0


def test_memory_by_part() -> None:
    model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5))
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    weights = 4 * (3 * 5 + 5 + 4 * 5) + 8  # and the counter of batches
    assert bytes_by_part(model, [optimizer]) == {"weights": weights, "gradients": 0, "optimizer": 0}
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    gradients = 4 * (3 * 5 + 5 + 2 * 5)
    steps = 4 * len(list(model.parameters()))
    assert bytes_by_part(model, [optimizer]) == {
        "weights": weights, "gradients": gradients, "optimizer": 2 * gradients + steps
    }  # fmt: skip
