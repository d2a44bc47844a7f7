"""What one step really computed in: by operation, module and phase; and recipes that did not take effect are told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import torch
from small_workloads import DropoutNet, config_of, events_of, series_of
from torch import Tensor, nn

from amp_core.config import parse_recipe
from amp_core.events import EffectivePrecision, Frame, decode_body, encode_frame
from amp_core.precision import precision_for
from amp_core.setup import build_step
from amp_core.telemetry.closeup import CloseUp
from amp_core.telemetry.effective import judged
from amp_core.telemetry.kernels import uses_tensor_cores
from amp_core.telemetry.numerics import NumericsSampler
from amp_core.telemetry.recorder import Recorder
from amp_core.training import train
from amp_core.workload import Split

BATCH, IN, WIDTH, OUT = 16, 8, 24, 4
FORWARD = 2 * BATCH * (IN * WIDTH + WIDTH * OUT)  # two Linear layers, a multiplication and an addition each
BACKWARD = 2 * BATCH * (IN * WIDTH + 2 * WIDTH * OUT)  # the first layer's input needs no gradient


def proof_of(recipe: Any, workload: Any = None, **fields: Any) -> EffectivePrecision:
    (event,) = events_of(train(config_of(recipe, steps=2, **fields), workload or DropoutNet()), EffectivePrecision)
    assert isinstance(event, EffectivePrecision)
    assert decode_body(encode_frame(Frame(sequence=1, at=0.0, event=event))[4:]).event == event
    return event


@pytest.mark.parametrize(
    ("recipe", "dtype"),
    [
        ("32-true", "float32"),
        ("bf16-mixed", "bfloat16"),
        ({"precision": "bf16-mixed", "autocast_policy": "cuda"}, "bfloat16"),
        ("16-mixed", "float16"),
        ({"precision": "16-mixed", "fp16_compute": "native"}, "float16"),
        ("bf16-true", "bfloat16"),
    ],
)
def test_flops_are_those_of_the_layers_in_the_type_asked_for(recipe: Any, dtype: str) -> None:
    proof = proof_of(recipe)
    assert (proof.step, proof.asked, proof.took_effect) == (2, dtype, True)
    assert proof.flops == {dtype: FORWARD + BACKWARD}
    by_place = {(one.module, one.phase): one.flops for one in proof.operations if one.flops}
    assert by_place[("0", "forward")] == 2 * BATCH * IN * WIDTH
    assert by_place[("4", "forward")] == 2 * BATCH * WIDTH * OUT
    assert by_place[("0", "backward")] == 2 * BATCH * IN * WIDTH
    assert by_place[("4", "backward")] == 2 * 2 * BATCH * WIDTH * OUT
    assert proof.fused["optimizer"]
    assert proof.kernels == {}


def test_casts_are_counted_with_their_bytes() -> None:
    proof = proof_of("bf16-mixed")
    forward = [cast for cast in proof.casts if (cast.module, cast.phase) == ("0", "forward")]
    assert {(cast.source, cast.target) for cast in forward} == {("float32", "bfloat16")}
    assert sum(cast.num_bytes for cast in forward) == 2 * (BATCH * IN + WIDTH * IN + WIDTH)
    assert sum(cast.calls for cast in forward) == 3
    assert not proof_of("32-true").casts
    assert proof.seconds["casts"] > 0


def test_a_norm_in_fp32_is_seen_where_cuda_has_it_so() -> None:
    def norms(recipe: Any) -> set[str]:
        return {o.dtype for o in proof_of(recipe).operations if o.module == "3" and "layer_norm" in o.op}

    assert norms({"precision": "bf16-mixed", "autocast_policy": "cuda"}) == {"float32"}


class SwitchedOff(DropoutNet):
    """A model that leaves autocast by itself."""

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            return super().loss(model, batch)


class OwnAutocast(DropoutNet):
    """A workload that enters autocast by itself, under whatever recipe."""

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return super().loss(model, batch)


class OwnMatmulPrecision(DropoutNet):
    """A workload that lowers matrix products by a switch in the middle of training."""

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        torch.set_float32_matmul_precision("medium")
        return super().loss(model, batch)


@pytest.fixture
def _matmul_precision() -> Iterator[None]:
    yield
    torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("recipe", ["bf16-mixed", "16-mixed"])
def test_autocast_that_is_switched_off_is_told(recipe: str) -> None:
    proof = proof_of(recipe, SwitchedOff())
    assert proof.took_effect is False
    assert "but 100 % of the FLOPs of matrix products ran in float32" in proof.sentence


def test_an_fp32_run_with_an_autocast_of_its_own_is_told() -> None:
    proof = proof_of("32-true", OwnAutocast())
    assert proof.took_effect is False
    assert "but 100 % of the FLOPs of matrix products ran in bfloat16" in proof.sentence


@pytest.mark.usefixtures("_matmul_precision")
def test_a_matmul_precision_that_the_workload_sets_is_told() -> None:
    proof = proof_of("32-true", OwnMatmulPrecision())
    assert proof.flags["mkldnn.matmul"] != "ieee"
    assert proof.took_effect is False


def test_modules_kept_in_fp32_are_no_fault() -> None:
    proof = proof_of({"precision": "bf16-mixed", "fp32_modules": ["0"]})
    assert proof.kept_flops == {"float32": 2 * 2 * BATCH * IN * WIDTH}
    assert proof.flops == {"float32": 4 * BATCH * IN * WIDTH, "bfloat16": 6 * BATCH * WIDTH * OUT}
    assert proof.took_effect is True


class Elementwise(DropoutNet):
    def model(self) -> nn.Module:
        return nn.LayerNorm(8)

    def batches(self, split: Split, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        for x, _ in super().batches(split, seed):
            yield x, x


def test_without_products_nothing_is_claimed() -> None:
    proof = proof_of("bf16-mixed", Elementwise())
    assert proof.took_effect is None
    assert "cannot be told" in proof.sentence


def test_shares_are_of_what_the_recipe_may_lower() -> None:
    bf16, fp32 = parse_recipe("bf16-mixed"), parse_recipe("32-true")
    assert judged(bf16, {"bfloat16": 50, "float32": 50}, {})[0] is True
    assert judged(bf16, {"bfloat16": 49, "float32": 51}, {})[0] is False
    assert judged(bf16, {"bfloat16": 49, "float32": 51}, {"float32": 51})[0] is True
    assert judged(fp32, {"float32": 99, "tf32": 1}, {})[0] is True
    assert judged(fp32, {"float32": 98, "tf32": 2}, {})[0] is False
    assert judged(fp32, {"float64": 9}, {})[0] is True


def test_dimensions_off_the_alignment_are_listed() -> None:
    assert not proof_of("32-true", DropoutNet(width=25)).misaligned
    found = proof_of("bf16-mixed", DropoutNet(width=25)).misaligned
    assert {one.multiple for one in found} == {8}
    assert any(25 in shape for one in found for shape in one.shapes)


def test_a_fault_of_the_watcher_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> int:
        raise ValueError("odd shapes")

    monkeypatch.setattr("amp_core.telemetry.operations._flops", broken)
    proof = proof_of("bf16-mixed")
    assert proof.took_effect is None
    assert "odd shapes" in proof.sentence


class Recurrent(nn.Module):
    """The same layers twice, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.body(self.body(x)))
        return out


class Twice(DropoutNet):
    def model(self) -> nn.Module:
        return Recurrent()


@pytest.mark.parametrize("checkpointing", [(), ("body",)])
def test_backward_belongs_to_the_module_of_its_forward(checkpointing: tuple[str, ...]) -> None:
    """What checkpointing computes again counts for backward; the last layer of a checkpoint is not needed again."""
    proof = proof_of({"precision": "32-true", "gradient_checkpointing": list(checkpointing)}, Twice())
    flops: Counter[tuple[str, str]] = Counter()
    for one in proof.operations:
        flops[one.module, one.phase] += one.flops
    once, again = 2 * BATCH * 8 * 8, 2 if checkpointing else 0
    assert flops["body.0", "forward"] == flops["body.2", "forward"] == 2 * once
    assert flops["body.0", "backward"] == (3 + again) * once, "the gradient of the first input is not needed"
    assert flops["body.2", "backward"] == 4 * once
    assert flops["head", "backward"] == 2 * flops["head", "forward"] == once


@pytest.mark.parametrize("recipe", ["32-true", "bf16-mixed", "16-mixed", "bf16-true"])
def test_the_watched_step_computes_what_it_would_unwatched(recipe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = series_of(train(config_of(recipe, steps=6), DropoutNet()))["train/loss"]
    monkeypatch.setattr("amp_core.telemetry.closeup.PROOF_STEP", 10**9)
    plain = series_of(train(config_of(recipe, steps=6), DropoutNet()))
    assert plain["train/loss"] == watched
    assert "perf/flops_per_step" not in plain


def test_flops_give_rates_except_where_numbers_are_emulated() -> None:
    series = series_of(train(config_of("32-true", flush_interval_s=0.0), DropoutNet()))
    assert series["perf/flops_per_step"] == {2: FORWARD + BACKWARD}
    times = series["perf/step_time_s"]
    for step, rate in series["perf/tflops_per_s"].items():
        assert rate == pytest.approx((FORWARD + BACKWARD) / times[step] / 1e12)
    assert 0 < max(series["perf/mfu"].values()) < 1
    emulated = series_of(train(config_of("16-mixed"), DropoutNet()))
    assert not {"perf/tflops_per_s", "perf/mfu"} & emulated.keys()


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        ("ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn", True),
        ("volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn", True),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off", True),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_32x3_nn_align8>(Params)", True),
        ("nvjet_tst_192x192_64x4_1x2_h_bz_coopB_TNT", True),
        ("void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>>(Flash_fwd_params)", True),
        ("cutlass_80_simt_sgemm_128x128_8x4_nn_align1", False),
        ("volta_sgemm_128x64_tn", False),
        ("implicit_convolve_sgemm", False),
    ],
)
def test_kernel_names_show_tensor_cores(kernel: str, expected: bool) -> None:
    assert uses_tensor_cores(kernel) is expected


def test_a_compiled_model_is_not_looked_into() -> None:
    """The step is built without compiling, which takes half a minute; the watcher goes by the recipe."""
    config = config_of("bf16-mixed")
    precision = precision_for(config.recipe, torch.device("cpu"))
    step = build_step(DropoutNet(), config.recipe, precision, 0, 2)
    precision.recipe = msgspec.structs.replace(config.recipe, compile=True)
    recorder = Recorder()
    closeup = CloseUp(step, NumericsSampler(precision, 25, 100, recorder), recorder)
    with precision.applied(step.model):
        _, events = closeup.backward(2, step.take(iter(DropoutNet().batches("train", 0))))
    (proof,) = events
    assert isinstance(proof, EffectivePrecision)
    assert (proof.took_effect, proof.flops, proof.fused["compiled"]) == (None, {}, True)
    assert "The model is compiled" in proof.sentence
    assert recorder.segment() is None
