"""Analyses that begin at a kept checkpoint instead of training a start of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from planted_workloads import Planted, config_of

from amp_core.analysis import analysis_of
from amp_core.analysis.start import find_start
from amp_core.checkpoints import Checkpoints, load
from amp_core.config import Fork
from amp_core.errors import ForkError
from amp_core.events import Checkpointed, Progress, Report
from amp_core.training import train

AT = 9


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def fork(tmp_path: Path) -> Fork:
    """The checkpoint after step `AT` of an FP32 run of the workload."""
    config = msgspec.structs.replace(config_of("train", "fp32"), keep_steps=(AT,), eval_every=1000, diagnose_s=0.0)
    events = train(config, Planted(tall="6"), Checkpoints(tmp_path, 1, config.keep_steps))
    path = next(Path(event.path) for event in events if isinstance(event, Checkpointed) and event.kept)
    return Fork(run=4, step=AT, name=path.name, path=str(path), seed=config.seed, steps=config.steps)


def test_the_start_is_where_that_training_went_on(fork: Fork) -> None:
    """Three steps from the checkpoint are those that the seed's own twelve steps end with."""
    config = config_of("sensitivity", "fp16")
    own = find_start(config, Planted(tall="6"), AT + 3, 4)
    begun = find_start(msgspec.structs.replace(config, fork=fork), Planted(tall="6"), 3, 4)
    assert begun.fingerprint == own.fingerprint
    assert begun.batches == own.batches
    there = find_start(msgspec.structs.replace(config, fork=fork), Planted(tall="6"), 0, 1)
    saved = load(Path(fork.path))["model"]
    assert all(torch.equal(there.weights[name], saved[name]) for name in saved)


def test_another_seed_takes_other_batches_from_there(fork: Fork) -> None:
    config = msgspec.structs.replace(config_of("sensitivity", "fp16"), fork=fork)
    own, other = (find_start(msgspec.structs.replace(config, seed=seed), Planted(), 0, 2) for seed in (3, 5))
    assert own.fingerprint == other.fingerprint
    assert own.batches != other.batches


def test_the_search_begins_there_and_its_certificate_says_so(fork: Fork) -> None:
    config = msgspec.structs.replace(config_of("sensitivity", "fp16", start=2, horizon=4), fork=fork)
    events = list(analysis_of("sensitivity")(config, Planted(tall="6")))
    told = [event.message for event in events if isinstance(event, Progress)]
    assert told[0] == f"Training 2 steps in FP32 after step {AT} of run 4"
    content = [event for event in events if isinstance(event, Report)][-1].content
    assert content["minimal"] == ["7.linear"]
    checkpoint = content["certificate"]["checkpoint"]
    assert (checkpoint["step"], checkpoint["training"]) == (AT + 2, "run 4")


@pytest.mark.parametrize("kind", ["sensitivity", "stress", "layers"])
def test_without_its_checkpoint_it_does_not_begin(kind: str, fork: Fork) -> None:
    Path(fork.path).unlink()
    options: dict[str, Any] = {"start": 1}
    config = msgspec.structs.replace(config_of(kind, "fp16", **options), fork=fork)
    with pytest.raises(ForkError, match="cannot be read"):
        list(analysis_of(kind)(config, Planted()))
