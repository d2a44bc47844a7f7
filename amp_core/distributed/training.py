"""Training on one rank: the engine's own loop, with what several ranks must decide together."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from amp_core.checkpoints import Checkpoints, Written
from amp_core.config import RunConfig
from amp_core.distributed.agreed import load_agreed
from amp_core.distributed.group import Ranks
from amp_core.distributed.replicas import replicate, shard_weights
from amp_core.distributed.shards import gathered, scattered
from amp_core.distributed.step import RankStep
from amp_core.environment import environment
from amp_core.errors import ForkError, Interrupted, NotResumable
from amp_core.events import Event, NonFinite, Started
from amp_core.forking import enter, perturbed, schedule_steps, state_at
from amp_core.precision import Precision, precision_for
from amp_core.recipe_rules import check_strategy
from amp_core.resume import rng_states, set_rng_states
from amp_core.seeding import seed_everything, stream_seed
from amp_core.setup import build_step
from amp_core.telemetry.closeup import CloseUp
from amp_core.telemetry.numerics import NumericsSampler
from amp_core.telemetry.watch import NonFiniteWatch, spell
from amp_core.training import GATHER_EVERY, Training
from amp_core.workload import Workload

AGREE_EVERY = 5  # steps between two questions whether to stop or to write a checkpoint; asking waits for the device

Asked = Callable[[], bool]


def train_rank(
    config: RunConfig, workload: Workload, ranks: Ranks, cancel_asked: Asked, pause_asked: Asked
) -> Iterator[Event]:
    """The events of one rank; the caller sends those of rank 0. When asked, all ranks end after the same step.

    Raises:
        RecipeError: if the device or the strategy cannot run the recipe.
        WorkloadError: if the workload breaks its contract, or a batch has fewer samples than there are ranks.
    """
    began = time.perf_counter()
    check_strategy(config.recipe, config.distribution.strategy)
    precision = precision_for(config.recipe, ranks.device)
    training, refused = _prepared(config, workload, precision, ranks)
    training.cancel_asked, training.stop_asked = cancel_asked, pause_asked
    training.pause_asked = training.agreed_pause
    with precision.applied(training.step.model):
        if not training.is_sharded:
            training.join_replicas()
        started = Started(
            numerics=precision.numerics,
            environment={
                **environment(precision, config.workload.path),
                "ranks": {
                    "size": ranks.size,
                    "hosts": config.distribution.nnodes,
                    "strategy": config.distribution.strategy,
                    "reduce_dtype": config.recipe.reduce_dtype or "fp32",
                },
            },
            num_parameters=sum(p.numel() for p in training.step.model.parameters()),
            setup_s=time.perf_counter() - began,
            resumed_step=training.number,
            not_resumed=" ".join(f"{reason}." for reason in refused),
        )
        yield from training.events(started)


def _prepared(
    config: RunConfig, workload: Workload, precision: Precision, ranks: Ranks
) -> tuple[RankTraining, list[str]]:
    """As `amp_core.training` prepares a run; all ranks go on from one checkpoint, or none does."""
    state, refused = load_agreed(config.resume_from, ranks)
    while True:
        training = RankTraining(config, _step(config, workload, precision, ranks), ranks)
        if state is None:
            training.begin()
            return training, refused
        try:
            training.resume(state)
        except NotResumable as error:
            refused.append(str(error))
            is_resumed = False
        else:
            is_resumed = True
        if not ranks.any(not is_resumed):
            return training, refused
        state = None


def _step(config: RunConfig, workload: Workload, precision: Precision, ranks: Ranks) -> RankStep:
    is_sharded = config.distribution.strategy == "fsdp"
    step = build_step(
        workload,
        config.recipe,
        precision,
        config.seed,
        schedule_steps(config),
        config.init_perturbation if config.fork is None else 0.0,
        kind=RankStep,
        before_optimizers=(lambda model: shard_weights(model, precision, ranks)) if is_sharded else None,
    )
    assert isinstance(step, RankStep)
    step.join(ranks, step.model)
    seed_everything(stream_seed(config.seed, "dropout", ranks.rank))
    return step


class RankTraining(Training):
    """`Training` of one rank. What depends on a clock, a signal or a rank's own numbers is agreed upon first."""

    def __init__(self, config: RunConfig, step: RankStep, ranks: Ranks) -> None:
        folder = config.checkpoint_dir
        self.is_sharded = config.distribution.strategy == "fsdp"
        checkpoints: Any = None
        if folder is not None and ranks.rank == 0:
            checkpoints = Checkpoints(Path(folder), config.checkpoint_keep, config.keep_steps)
        elif folder is not None:
            checkpoints = _WrittenByRank0()
        super().__init__(config, step, checkpoints)
        self.ranks = ranks
        self.rank_step = step
        self.cancel_asked: Asked = bool
        self.stop_asked: Asked = bool
        self._is_checkpoint_due = False
        self._reason = ""
        if self.is_sharded:
            self.watch = _ShardWatch(step.model, step.parameters)
            sampler = NumericsSampler(step.precision, config.numerics_every, config.steps, self.recorder)
            self.closeup = _FromAfar(step, sampler, self.recorder)

    def join_replicas(self) -> None:
        """From here on forward passes reduce their gradients over the ranks."""
        self.rank_step.join(self.ranks, replicate(self.step.model, self.config.recipe, self.ranks))

    def agreed_pause(self) -> bool:
        """Whether all ranks pause after this step; raises `Interrupted` on all of them when the run was cancelled."""
        self._is_checkpoint_due = False
        if self.number % AGREE_EVERY:
            return False
        due = time.perf_counter() - self.checkpointed_at >= self.config.checkpoint_every_s
        asked = torch.tensor(
            [float(self.cancel_asked()), float(self.stop_asked()), float(due and self.ranks.rank == 0)],
            device=self.ranks.device,
        )
        counts: list[float] = self.ranks.sum(asked).tolist()
        cancelled, paused, self._is_checkpoint_due = (count > 0 for count in counts)
        if cancelled:
            raise Interrupted
        return paused

    def resume(self, state: dict[str, Any]) -> None:
        self._check_ranks(state)
        try:
            placed = self._placed(state)
        except (KeyError, ValueError, RuntimeError) as error:
            raise NotResumable(f"the checkpoint does not fit this model or its optimizers: {error}") from error
        super().resume(placed)
        set_rng_states(state["rank_rng"][self.ranks.rank], self.device)

    def begin(self) -> None:
        """Go to another run's checkpoint if this one forks from it. Raises `ForkError`."""
        fork = self.config.fork
        if fork is None:
            return
        state = state_at(self.config, fork)
        try:
            self._check_ranks(state)
            placed = self._placed(perturbed(self.config, self.step.model, state))
        except (NotResumable, KeyError, ValueError, RuntimeError) as error:
            raise ForkError(
                f"the checkpoint of run {fork.run} does not fit these ranks or this model: {error}"
            ) from error
        own = {"rng": state["rank_rng"][self.ranks.rank]}
        enter(self.config, fork, self.step, self.data, {**placed, **own})

    def _check_ranks(self, state: dict[str, Any]) -> None:
        if len(state.get("rank_rng", ())) != self.ranks.size:
            raise NotResumable(f"the checkpoint was not made by {self.ranks.size} ranks")

    def _placed(self, state: dict[str, Any]) -> dict[str, Any]:
        return scattered(self.step, state) if self.is_sharded else state

    def _state(self) -> dict[str, Any]:
        """As one process has it; a collective, of which rank 0 alone needs the result."""
        state = {**super()._state(), "rank_rng": self.ranks.gathered(rng_states(self.device))}
        return gathered(state, keep=self.ranks.rank == 0) if self.is_sharded else state

    def _checkpoint_due(self) -> bool:
        every = self.config.checkpoint_every_steps
        if self.number in self.config.keep_steps:
            return True
        if self.number >= self.config.steps:
            return False
        return bool(self._is_checkpoint_due or (every and self.number % every == 0))

    def _stopped(self) -> str:
        """Asked after the same steps on all ranks, and answered alike."""
        if self.number and self.number % GATHER_EVERY == 0 and not self._reason:
            own = super()._stopped()
            if self.ranks.any(bool(own)):
                self._reason = own or "Another rank's weights have not been finite: nothing brings them back."
        return self._reason


class _WrittenByRank0:
    """Stands for the checkpoints that rank 0 writes."""

    def save(self, step: int, state: dict[str, Any]) -> Written:  # noqa: ARG002 - the signature of `Checkpoints.save`
        return Written(path=Path(), num_bytes=0)


class _FromAfar(CloseUp):
    """Watches no step: what is seen of shards is not what is seen of modules."""

    def due(self, number: int) -> bool:  # noqa: ARG002 - as of no step
        return False


class _ShardWatch(NonFiniteWatch):
    """Looks at this rank's shards alone, so that looking is no collective."""

    def _check_weights(self, step: int) -> list[NonFinite]:
        for name, parameter in self._model.named_parameters():
            weight = parameter.detach()
            local = weight.to_local() if isinstance(weight, DTensor) else weight
            bad = local[~torch.isfinite(local)].flatten()
            if len(bad):
                self.dead_since = step
                return [NonFinite(step=step, where="weight", name=name, value=spell(float(bad[0])))]
        return []
