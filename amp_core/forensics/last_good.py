"""States of a running training to return to: the newest two that were healthy, in bounded memory and bounded time."""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from amp_core.config import RunConfig
from amp_core.resume import capture
from amp_core.step import TrainStep
from amp_core.torch_private.tensors import tree_leaves, tree_map
from amp_core.training_data import TrainingData

MAX_BYTES = 256 << 20  # of one state; two are kept
SHARE_OF_TIME = 1 / 400  # of the training, at most, goes into copies
FIRST_AFTER_S = 5.0
KEPT = 2


@dataclass(frozen=True, kw_only=True)
class GoodState:
    """A checkpoint in memory, after step ``number``. The batches since are drawn again from the data's position."""

    number: int
    state: dict[str, Any]


class LastGood:
    """Copies the state now and then. Before the first copy the start of the run is the state to return to.

    A copy waits until the training has taken 400 times as long as the last copy took, and five seconds at least. A
    model whose state is above `MAX_BYTES` is never copied: its checkpoints, or its start, have to do.
    """

    def __init__(self, config: RunConfig) -> None:
        self._config = config
        self._next_at = time.monotonic() + FIRST_AFTER_S
        self.states: list[GoodState] = []

    def consider(self, number: int, step: TrainStep, data: TrainingData) -> None:
        """Copy the state after step ``number`` if it is time. Call it only while everything seen was healthy."""
        began = time.monotonic()
        if began < self._next_at:
            return
        state = capture(self._config, step)
        size = sum(leaf.numel() * leaf.element_size() for leaf in tree_leaves(state) if isinstance(leaf, Tensor))
        if size > MAX_BYTES:
            self._next_at = float("inf")
            return
        oldest = self.states.pop(0).state if len(self.states) == KEPT else {}
        state = {**_copied(state, oldest), "data": data.position()}
        self.states.append(GoodState(number=number, state=state))
        took = time.monotonic() - began
        self._next_at = began + max(FIRST_AFTER_S, took / SHARE_OF_TIME)


def _copied(state: dict[str, Any], spent: dict[str, Any]) -> dict[str, Any]:
    """A copy on the CPU, in the memory of a spent one where shapes agree: fresh pages cost as much as copying."""
    own = {name: part for name, part in spent.items() if name != "data"}
    spares = iter([leaf for leaf in tree_leaves(own) if isinstance(leaf, Tensor)])

    def copied(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return copy.deepcopy(leaf)
        spare = next(spares, None)
        if spare is None or (spare.shape, spare.dtype) != (leaf.shape, leaf.dtype):
            return leaf.detach().to("cpu", copy=True)
        return spare.copy_(leaf.detach())

    made: dict[str, Any] = tree_map(copied, state)
    return made
