"""A run that begins at another run's checkpoint: its own recipe and seed go on bitwise, others differ as meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from plain_loops import Scheduled, TwoOptimizers
from small_workloads import DropoutNet, config_of, events_of, series_of

from amp_core import Workload
from amp_core.checkpoints import Checkpoints, load
from amp_core.config import Fork, RunConfig, WorkloadRef
from amp_core.errors import ForkError
from amp_core.events import Checkpointed, Evaluated, Event, Finished, Started
from amp_core.forensics.scene import find_scene
from amp_core.forking import begin, built
from amp_core.precision import precision_for
from amp_core.training import train
from amp_core.training_data import TrainingData

STEPS, AT, HORIZON, SEED = 40, 17, 15, 3  # an epoch has 7 batches: the fork lies within one
GONE = f"step-0000000017-{'0' * 32}.pt"
CPU = torch.device("cpu")
SCALED = {"precision": "16-mixed", "fp16_compute": "native", "scaler": {"init_scale": 2.0**22, "growth_interval": 4}}
KINDS: dict[str, tuple[type[Workload], Any]] = {
    "dropout": (DropoutNet, "32-true"),
    "two optimizers": (TwoOptimizers, "32-true"),
    "schedule, average, clipping": (Scheduled, {"precision": "32-true", "ema_decay": 0.9, "clip_norm": 0.1}),
    "accumulation": (DropoutNet, {"precision": "32-true", "accumulate": 3}),
    "a scaled baseline": (DropoutNet, SCALED),
}


class Origin:
    """A whole run and its checkpoint after step `AT`."""

    def __init__(self, kind: type[Workload], recipe: Any, folder: Path, **fields: Any) -> None:
        self.kind = kind
        config = config_of(recipe, steps=STEPS, seed=SEED, eval_every=5, keep_steps=(AT,), **fields)
        self.events = list(train(config, kind(), Checkpoints(folder, 1, config.keep_steps)))
        (made,) = [event for event in events_of(self.events, Checkpointed) if event.kept]
        self.path = Path(made.path)
        self.fork = Fork(run=9, step=AT, name=self.path.name, path=str(self.path), seed=SEED, steps=STEPS)

    def forked(self, recipe: Any, **fields: Any) -> RunConfig:
        given = {"steps": HORIZON, "seed": SEED, "eval_every": 5, "fork": self.fork, **fields}
        return config_of(recipe, **given)

    def run(self, recipe: Any, **fields: Any) -> list[Event]:
        return list(train(self.forked(recipe, **fields), self.kind()))


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    return Origin(DropoutNet, "32-true", tmp_path)


def losses(events: list[Event], after: int = 0, until: int = 10**9) -> list[float]:
    return [loss for step, loss in sorted(series_of(events)["train/loss"].items()) if after < step <= until]


@pytest.mark.parametrize("kind", KINDS)
def test_its_own_recipe_and_seed_go_on_as_the_run_would(kind: str, tmp_path: Path) -> None:
    workload, recipe = KINDS[kind]
    origin = Origin(workload, recipe, tmp_path)
    forked = origin.run(recipe)
    assert len(losses(forked)) == HORIZON
    assert losses(forked) == losses(origin.events, AT, AT + HORIZON)
    whole, own = series_of(origin.events), series_of(forked)
    for name in ("grad/norm", "optim/learning_rate", "amp/loss_scale", "amp/skipped"):
        late = {step - AT: value for step, value in whole.get(name, {}).items() if AT < step <= AT + HORIZON}
        assert own.get(name, {}) == late, name


def test_a_fork_to_the_end_has_the_runs_result(origin: Origin) -> None:
    (whole,) = events_of(origin.events, Finished)
    (finished,) = events_of(origin.run("32-true", steps=STEPS - AT), Finished)
    assert finished.metrics == whole.metrics
    assert finished.steps == STEPS - AT, "its own steps are counted"


def test_another_seed_takes_its_own_order_from_the_same_place(origin: Origin) -> None:
    own, other = losses(origin.run("32-true")), losses(origin.run("32-true", seed=4))
    assert own[0] != other[0]
    config = origin.forked("32-true", seed=4)
    step, data = started_at(config, origin)
    assert data.position()["epoch"] == 2
    assert data.position()["index"] == AT - 2 * 7
    fresh = TrainingData(DropoutNet(), 4)
    taken = [next(fresh) for _ in range(AT + 1)]
    assert torch.equal(next(data)[0], taken[AT][0]), "as if this seed's training stood there"
    assert torch.equal(step.parameters[0], load(origin.path)["model"]["0.weight"])


def started_at(config: RunConfig, origin: Origin) -> tuple[Any, TrainingData]:
    workload = origin.kind()
    step, data = built(config, workload, precision_for(config.recipe, CPU)), TrainingData(workload, config.seed)
    begin(config, step, data)
    return step, data


def test_recipes_of_one_seed_see_the_same_data_and_masks(origin: Origin) -> None:
    """Checkpointed modules compute what FP32 computes, so that everything else must be the same."""
    same = {"precision": "32-true", "gradient_checkpointing": ["0"]}
    assert losses(origin.run(same, seed=5)) == losses(origin.run("32-true", seed=5))
    first = [losses(origin.run(recipe))[0] for recipe in ("32-true", "bf16-mixed", "bf16-true", "16-mixed")]
    assert len(set(first)) > 1
    assert first == pytest.approx([first[0]] * 4, rel=0.05)


@pytest.mark.parametrize(("recipe", "dtype"), [("bf16-true", torch.bfloat16), ("16-true", torch.float16)])
def test_low_recipes_store_weights_and_optimizer_state_in_their_type(
    recipe: str, dtype: torch.dtype, origin: Origin
) -> None:
    step, _ = started_at(origin.forked(recipe), origin)
    saved = load(origin.path)
    for name, parameter in step.model.named_parameters():
        assert parameter.dtype is dtype
        assert torch.equal(parameter, saved["model"][name].to(dtype))
    (optimizer,) = step.optimizers
    (old,) = saved["optimizers"]
    for index, parameter in enumerate(step.parameters):
        for key, value in old["state"][index].items():
            own = optimizer.state[parameter][key]
            assert own.dtype is (value.dtype if key == "step" else dtype), key
            assert torch.equal(own, value.to(own.dtype))


def test_a_scaler_begins_by_its_recipe(origin: Origin) -> None:
    events = origin.run({"precision": "16-mixed", "scaler": {"init_scale": 512.0}})
    assert series_of(events)["amp/loss_scale"][1] == 512.0


def test_another_scaled_recipe_takes_no_scale_over(tmp_path: Path) -> None:
    origin = Origin(DropoutNet, SCALED, tmp_path)
    saved = load(origin.path)["scaler"]["scale"]
    step, _ = started_at(origin.forked(SCALED), origin)
    assert float(step.scaler.current_scale) == saved
    assert saved != SCALED["scaler"]["init_scale"]
    other = {**SCALED, "scaler": {"init_scale": 2.0**22, "growth_interval": 5}}
    step, _ = started_at(origin.forked(other), origin)
    assert float(step.scaler.current_scale) == 2.0**22


def test_an_average_begins_at_the_checkpoint(origin: Origin, tmp_path: Path) -> None:
    averaged = {"precision": "bf16-true", "ema_decay": 0.9}
    step, _ = started_at(origin.forked(averaged), origin)
    for name, parameter in step.model.named_parameters():
        assert torch.equal(step.real_steps.ema.state_dict()[name], parameter.float()), "made anew from the weights"
    recipe = {"precision": "32-true", "ema_decay": 0.9}
    other = Origin(DropoutNet, recipe, tmp_path / "averaged")
    step, _ = started_at(other.forked(averaged), other)
    saved = load(other.path)["ema"]
    assert all(torch.equal(step.real_steps.ema.state_dict()[name], saved[name]) for name in saved)


def test_the_control_perturbs_the_checkpoints_weights(origin: Origin) -> None:
    step, _ = started_at(origin.forked("32-true", init_perturbation=1e-6), origin)
    saved = load(origin.path)["model"]
    changes = [((p.detach() - saved[n]) / saved[n]).abs().nan_to_num().max() for n, p in step.model.named_parameters()]
    assert all(float(change) < 1e-5 for change in changes)
    assert sum(float(change) > 0 for change in changes) > len(changes) / 2, "but for biases of zero"
    again, _ = started_at(origin.forked("32-true", init_perturbation=1e-6), origin)
    assert all(torch.equal(a, b) for a, b in zip(step.parameters, again.parameters, strict=True))


def test_a_fork_that_died_goes_on_without_the_checkpoint_it_began_at(origin: Origin, tmp_path: Path) -> None:
    config = origin.forked(SCALED, seed=4)
    calm = list(train(config, DropoutNet()))
    died = []
    writing = msgspec.structs.replace(config, checkpoint_every_steps=6)
    for event in train(writing, DropoutNet(), Checkpoints(tmp_path / "own", 2)):
        died.append(event)
        if isinstance(event, Checkpointed) and event.step == 12:
            break
    origin.path.unlink()
    resumed = list(train(msgspec.structs.replace(config, resume_from=(died[-1].path,)), DropoutNet()))
    assert resumed[0].resumed_step == 12
    assert losses(resumed) == losses(calm, after=12)
    assert events_of(resumed, Finished)[0].metrics == events_of(calm, Finished)[0].metrics


def test_its_own_checkpoint_fits_no_other_fork(origin: Origin, tmp_path: Path) -> None:
    config = msgspec.structs.replace(origin.forked("32-true"), checkpoint_every_steps=6)
    (made, *_) = events_of(train(config, DropoutNet(), Checkpoints(tmp_path / "own", 2)), Checkpointed)
    other = msgspec.structs.replace(origin.fork, run=10)
    started = next(train(msgspec.structs.replace(config, fork=other, resume_from=(made.path,)), DropoutNet()))
    assert isinstance(started, Started)
    assert started.resumed_step == 0
    assert "another workload, recipe, seed or length" in started.not_resumed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"path": f"/nowhere/{GONE}", "name": GONE}, "cannot be read"),
        ({"path": "elsewhere.pt"}, "to be found as"),
        ({"seed": 7}, "another training"),
        ({"steps": 50}, "another training"),
        ({"step": 18}, "another training"),
    ],
)  # fmt: skip
def test_what_is_not_the_meant_checkpoint_is_refused(change: dict[str, Any], message: str, origin: Origin) -> None:
    config = origin.forked("32-true", fork=msgspec.structs.replace(origin.fork, **change))
    with pytest.raises(ForkError, match=message):
        next(train(config, DropoutNet()))


def test_other_parameters_and_other_models_are_refused(origin: Origin) -> None:
    config = origin.forked("32-true")
    elsewhere = WorkloadRef(name="small", path=__file__, params={"width": 32})
    with pytest.raises(ForkError, match="another training"):
        next(train(msgspec.structs.replace(config, workload=elsewhere), DropoutNet()))
    with pytest.raises(ForkError, match="does not fit this model"):
        next(train(config, DropoutNet(width=32)))


def test_damage_is_found(origin: Origin) -> None:
    content = bytearray(origin.path.read_bytes())
    content[len(content) // 2] ^= 1
    origin.path.write_bytes(content)
    with pytest.raises(ForkError, match="is damaged"):
        origin.run("32-true")


def test_kept_steps_stay_and_change_nothing(tmp_path: Path) -> None:
    config = config_of("32-true", steps=STEPS, eval_every=10)
    plain = list(train(config, DropoutNet()))
    keeping = msgspec.structs.replace(config, keep_steps=(7, 18, STEPS), checkpoint_every_steps=5)
    events = list(train(keeping, DropoutNet(), Checkpoints(tmp_path, 2, keeping.keep_steps)))
    np.testing.assert_equal(losses(events), losses(plain))
    assert [event.metrics for event in events_of(events, Evaluated)] == [
        event.metrics for event in events_of(plain, Evaluated)
    ]
    assert [event.step for event in events_of(events, Checkpointed) if event.kept] == [7, 18, STEPS]
    assert sorted(int(path.name[5:15]) for path in tmp_path.iterdir()) == [7, 18, 35, STEPS]


def test_of_a_kept_step_the_newest_file_stays(tmp_path: Path) -> None:
    config = config_of("32-true", steps=12, keep_steps=(6,))
    for seed in (1, 2):
        again = msgspec.structs.replace(config, seed=seed)
        events = list(train(again, DropoutNet(), Checkpoints(tmp_path, 1, again.keep_steps)))
    (newest,) = events_of(events, Checkpointed)
    assert [path.name for path in tmp_path.iterdir()] == [Path(newest.path).name]


def test_a_fault_of_a_fork_is_replayed_from_its_beginning(tmp_path: Path) -> None:
    """Infinite gradients in every step: the diagnosis repeats the fork's first step, not the seed's."""
    origin = Origin(DropoutNet, "32-true", tmp_path)
    scene = find_scene(origin.forked("32-true"), DropoutNet(), None, 0, 1, 1, float("inf"))
    assert scene is not None
    saved = load(origin.path)["model"]
    assert all(torch.equal(scene.start.tensors[name], saved[name]) for name in saved)
