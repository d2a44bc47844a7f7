"""Whatever scaler a run had, each cure proposed for it is a recipe that can be submitted."""

from __future__ import annotations

from typing import Any

import msgspec
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

from amp_core.config import Recipe, Scaler, parse_recipe
from amp_core.errors import RecipeError
from amp_core.forensics.cures import candidates, starting_at
from amp_core.forensics.diagnosis import Symptom
from amp_core.forensics.locate import Fault
from amp_core.forensics.subject import Arm, Subject

SCALES = st.integers(-140, 140).map(lambda power: 2.0**power)
SYMPTOMS = st.sampled_from(["zero_gradients", "endless_skips", "non_finite_gradients", "non_finite_loss"])


@st.composite
def scalers(draw: st.DrawFn) -> Scaler:
    fields: dict[str, Any] = {
        "kind": draw(st.sampled_from(["dynamic", "dynamic", "static", "none"])),
        "init_scale": draw(SCALES),
        "growth_factor": draw(st.floats(1.001, 16.0)),
        "backoff_factor": draw(st.floats(0.01, 0.99)),
    }
    if fields["kind"] == "dynamic":
        fields["min_scale"] = draw(st.one_of(st.just(0.0), SCALES))
        fields["max_scale"] = draw(st.one_of(st.none(), SCALES))
        fields["hysteresis"] = draw(st.integers(1, 4))
    try:
        return Scaler(**fields)
    except RecipeError:
        assume(False)
        raise


@st.composite
def recipes(draw: st.DrawFn) -> Recipe:
    precision = draw(st.sampled_from(["16-mixed", "16-mixed", "bf16-mixed", "16-true", "bf16-true", "32-true"]))
    fields: dict[str, Any] = {"name": "the run's", "precision": precision, "accumulate": draw(st.integers(1, 3))}
    if precision == "16-mixed":
        fields |= {"scaler": draw(scalers()), "fp16_compute": draw(st.sampled_from(["auto", "emulated", "native"]))}
    if precision.endswith("mixed"):
        fields["autocast_policy"] = draw(st.sampled_from(["auto", "native", "cuda"]))
        fields["fp32_ops"] = draw(st.sampled_from([(), ("softmax",)]))
    fields["fp32_modules"] = draw(st.sampled_from([(), ("0",), ("0", "1.*")]))
    try:
        return Recipe(**fields)
    except RecipeError:
        assume(False)
        raise


@settings(max_examples=300, deadline=None)
@given(recipe=recipes(), kind=SYMPTOMS, scale=st.one_of(st.none(), SCALES), low=st.booleans())
def test_each_cure_can_be_submitted(recipe: Recipe, kind: Any, scale: float | None, low: bool) -> None:
    def model() -> nn.Module:
        return nn.Linear(2, 2, dtype=torch.float16 if low else torch.float32)

    subject = Subject(model=model, batches=[], loss=lambda m, b: m(b).sum(), optimizer=torch.optim.SGD, recipe=recipe)
    faults = [
        Fault(kind="overflow", module="block.0.norm", op="aten.mul", phase="forward", feeders=["block.0.linear"]),
        Fault(kind="underflow", module=None, op="aten.mean", phase="backward 0", feeders=["head", "block.1"]),
    ]
    symptom = Symptom(kind=kind, step=1, sentence="Something happened.", names=["block.0.weight", "head.bias"])
    for cure in candidates(subject, Arm(recipe=recipe), symptom, faults, scale):
        assert parse_recipe(msgspec.to_builtins(cure.recipe)) == cure.recipe
        assert cure.sentence


@settings(max_examples=300, deadline=None)
@given(scaler=scalers(), scale=SCALES)
def test_a_scaler_starts_where_it_is_told(scaler: Scaler, scale: float) -> None:
    moved = starting_at(scaler, scale)
    assert moved.init_scale == min(max(scale, 2.0**-126), 2.0**126)
    assert moved.min_scale in (scaler.min_scale, moved.init_scale)
    assert moved.max_scale in (scaler.max_scale, moved.init_scale)
    assert moved.growth_factor == scaler.growth_factor


def test_a_floor_above_the_scale_that_fits_gives_way_and_is_told() -> None:
    recipe = Recipe(name="r", precision="16-mixed", scaler=Scaler(init_scale=2.0**24, min_scale=2.0**20))
    subject = Subject(
        model=lambda: nn.Linear(2, 2), batches=[], loss=lambda m, b: m(b).sum(), optimizer=torch.optim.SGD,
        recipe=recipe,
    )  # fmt: skip
    symptom = Symptom(kind="endless_skips", step=1, sentence="Every step was skipped.")
    cure = next(candidates(subject, Arm(recipe=recipe), symptom, [], 2.0**10))
    assert cure.recipe.scaler == Scaler(init_scale=2.0**10, min_scale=2.0**10)
    assert cure.sentence == "start the loss scale at 1024, with min_scale 1024"
