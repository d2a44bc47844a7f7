"""The engine on a GPU: no waiting in a step, fused optimizers, TF32, kernels, memory, fp16 beside its emulation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gpu_workloads import GpuMlp, config_of

from amp_core.events import EffectivePrecision, Event, Segment, Started
from amp_core.precision import precision_for
from amp_core.precision.tf32 import fp32_precision
from amp_core.setup import build_step, device_named
from amp_core.training import train
from amp_core.training_data import TrainingData

pytestmark = pytest.mark.gpu
RECIPES = ("32-true", "tf32", "bf16-mixed", "16-mixed", "bf16-true", "16-true")


def _series(events: list[Event], name: str) -> dict[int, float]:
    found: dict[int, float] = {}
    for event in events:
        for column in event.columns if isinstance(event, Segment) else ():
            if column.name == name:
                steps = np.frombuffer(column.steps, "<i8").tolist()
                found.update(zip(steps, np.frombuffer(column.values, "<f8").tolist(), strict=True))
    return found


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_step_never_waits_for_the_device(recipe: str) -> None:
    config, workload = config_of(recipe), GpuMlp()
    precision = precision_for(config.recipe, device_named("cuda"))
    step = build_step(workload, config.recipe, precision, 3, 40)
    data = TrainingData(workload, 3)
    with precision.applied(step.model):
        for number in range(12):
            taken = step.take(data)
            torch.cuda.set_sync_debug_mode("error" if number >= 4 else "default")
            try:
                step.backward(taken)
                norms = step.gradient_norms()
                step.update(norms)
                step.clear()
            finally:
                torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_run_comes_to_its_end_and_took_effect(recipe: str) -> None:
    events = list(train(config_of(recipe), GpuMlp()))
    started = next(event for event in events if isinstance(event, Started))
    assert started.numerics == "native"
    losses = _series(events, "train/loss")
    assert len(losses) == 40
    assert losses[40] < losses[1]
    proof = next(event for event in events if isinstance(event, EffectivePrecision))
    assert proof.took_effect, proof.sentence
    assert proof.fused["optimizer"], "fused by default on CUDA"
    if recipe != "32-true":
        assert any(proof.kernels.values()), f"no tensor-core kernel among {list(proof.kernels)}"
    assert max(_series(events, "memory/allocated_bytes").values()) > 2**20
    assert all(value > 0 for value in _series(events, "perf/step_time_s").values())


def test_tf32_is_off_in_fp32_and_on_in_tf32() -> None:
    device = device_named("cuda")
    for recipe, expected in (("32-true", "ieee"), ("tf32", "tf32")):
        precision = precision_for(config_of(recipe).recipe, device)
        with precision.applied(torch.nn.Identity()):
            flags = fp32_precision()
            assert {flags[name] for name in ("cuda.matmul", "cudnn.conv", "cudnn.rnn")} == {expected}
    torch.manual_seed(0)
    a, b = torch.randn(512, 512, device=device), torch.randn(512, 512, device=device)
    exact = a.double() @ b.double()
    errors = {}
    for recipe in ("32-true", "tf32"):
        with precision_for(config_of(recipe).recipe, device).applied(torch.nn.Identity()):
            errors[recipe] = float((a @ b - exact).abs().max())
    assert errors["tf32"] > 10 * errors["32-true"]


def test_native_fp16_agrees_with_its_emulation_on_the_cpu(record_property: Any) -> None:
    native = _series(list(train(config_of("16-mixed"), GpuMlp())), "train/loss")
    emulated = _series(list(train(config_of("16-mixed", device="cpu"), GpuMlp())), "train/loss")
    exact = _series(list(train(config_of("32-true"), GpuMlp())), "train/loss")
    away = max(abs(native[step] - emulated[step]) / exact[step] for step in exact)
    record_property("largest relative difference of losses, native and emulated fp16", away)
    assert away < 0.05


def test_the_cuda_autocast_policy_is_the_device_s_own() -> None:
    from amp_core.precision import oplists
    from amp_core.precision.emulated import autocast_ops

    known = oplists.TENSOR_CORE | oplists.TENSOR_CORE_CHAIN | oplists.FP32 | oplists.PROMOTE | oplists.BANNED
    known |= oplists.PROMOTE_PRODUCT | oplists.UNREACHABLE | oplists.RECURRENT
    assert not autocast_ops("AutocastCUDA") - known


def test_operations_are_kept_in_fp32_on_a_gpu() -> None:
    precision = precision_for(config_of({"precision": "bf16-mixed", "fp32_ops": ["gelu"]}).recipe, device_named("cuda"))
    x = torch.randn(8, 8, device="cuda", dtype=torch.bfloat16)
    with precision.applied(torch.nn.Identity()), precision.forward():
        assert torch.nn.functional.gelu(x).dtype is torch.float32


@pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() < (8, 9), reason="needs capability 8.9"
)
def test_fp8_by_torchao_beside_the_emulation() -> None:
    pytest.importorskip("torchao.float8")
    native = list(train(config_of("fp8"), GpuMlp()))
    assert next(event for event in native if isinstance(event, Started)).numerics == "native"
    losses = _series(native, "train/loss")
    emulated = _series(list(train(config_of("fp8", device="cpu"), GpuMlp())), "train/loss")
    assert losses[40] == pytest.approx(emulated[40], rel=0.1)


def test_nvml_tells_power_and_memory() -> None:
    pytest.importorskip("pynvml")
    events = list(train(config_of("bf16-mixed", flush_interval_s=0.0), GpuMlp()))
    assert _series(events, "device/power_w")
    assert _series(events, "device/memory_used_bytes")
