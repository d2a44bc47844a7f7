"""Which operations low precision hurts most: the ranking of modules, taken where autocast meets an operation.

In one FP32 pass each operation that autocast sees also runs on rounded inputs, with its result rounded: the arithmetic
of a low type with FP32 inside. The score is that of `amp_core.analysis.ranking`, added up over all calls of a name.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.library import Library

from amp_core.analysis.ranking import MOVES, ModuleScore, Scorer
from amp_core.analysis.start import Start, reference_recipe, rewind, step_at
from amp_core.config import Recipe, RunConfig
from amp_core.precision.fp32_ops import KEYS, aten_operations, overloads
from amp_core.seeding import preserved_rng, rng_state, set_rng_state
from amp_core.torch_private.dispatcher import key_set, schema, withdraw, without
from amp_core.torch_private.tensors import tree_leaves, tree_map
from amp_core.workload import Workload

KIND = "operation"


def rank_operations(config: RunConfig, workload: Workload, start: Start, recipe: Recipe) -> list[ModuleScore]:
    """Scores of the operations of a forward and its loss, the most suspect first; without those the recipe keeps.

    Operations that only move values, and those that round nothing, are left out. Taken at the first of the start's
    steps.
    """
    step = step_at(config, workload, start, reference_recipe(config.recipe))
    device = step.precision.device
    dtype = torch.bfloat16 if recipe.precision == "bf16-mixed" else torch.float16
    taps = _OperationTaps(recipe, device, dtype)
    with step.precision.applied(step.model), taps.watching():
        rewind(start, step)
        for batch in start.steps[0]:
            with torch.autocast(device.type, dtype=dtype):
                loss = step.workload.loss(step.model, batch)
            loss.backward()  # type: ignore[no-untyped-call]
    kept = {name.removeprefix("aten::").removeprefix("aten.").partition(".")[0] for name in recipe.fp32_ops}
    scored = [score for name, score in taps.scores.items() if name not in kept and (score.error or score.out_of_range)]
    return sorted(scored, key=lambda score: (score.out_of_range, score.sensitivity), reverse=True)


class _OperationTaps:
    """Rules for every operation under the autocast key: FP32 goes on, the rounded twin is compared."""

    def __init__(self, recipe: Recipe, device: torch.device, dtype: torch.dtype) -> None:
        self._scorer = Scorer(recipe)
        self._device = device
        self._dtype = dtype
        self._key = KEYS[device.type]
        self.scores: dict[str, ModuleScore] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        library = Library("aten", "IMPL")  # type: ignore[no-untyped-call]
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Warning only once for all operators")
                for name, op in _pure_operations():
                    overload = schema(op).overload_name
                    spelled = f"{name}.{overload}" if overload else name
                    library.impl(spelled, self._rule(name, op), self._key, allow_override=True)  # type: ignore[no-untyped-call]
            yield
        finally:
            withdraw(library)

    def _rule(self, name: str, op: Any) -> Any:
        autocast = key_set(self._key)

        def kernel(*args: Any, **kwargs: Any) -> Any:
            with without(autocast):
                if not any(_is_wide(leaf) for leaf in tree_leaves((args, kwargs))):
                    return op(*args, **kwargs)
                rng = rng_state(self._device)
                exact = op(*args, **kwargs)
                self._compare(name, op, args, kwargs, exact, rng)
                return exact

        return kernel

    @torch.no_grad()
    def _compare(self, name: str, op: Any, args: Any, kwargs: Any, exact: Any, rng: Any) -> None:
        outputs = [leaf for leaf in tree_leaves(exact) if _is_wide(leaf)]
        if not outputs:
            return
        score = self.scores.setdefault(name, ModuleScore(name, KIND))
        low_args, low_kwargs = tree_map(self._rounded, (args, kwargs))
        with preserved_rng(self._device):
            set_rng_state(rng, self._device)
            result = op(*low_args, **low_kwargs)
        rounded = [self._rounded(leaf) for leaf in tree_leaves(result) if _is_wide(leaf)]
        with torch.enable_grad():
            for one, other in zip(outputs, rounded, strict=True):
                self._scorer.compare(score, one, other)

    def _rounded(self, value: Any) -> Any:
        return value.detach().to(self._dtype).float() if _is_wide(value) else value


def _is_wide(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype is torch.float32


def _pure_operations() -> list[tuple[str, Any]]:
    """Operations that return new tensors and may round something."""
    found = []
    for name, names in aten_operations().items():
        if name.startswith("__") or name in MOVES or name.endswith("_copy"):
            continue
        if any(not schema(getattr(getattr(torch.ops.aten, name), one)).is_mutable for one in names):
            found += [(name, op) for op in overloads(name) if _takes_tensors(op)]
    return found


def _takes_tensors(op: Any) -> bool:
    signature = schema(op)
    returns = any("Tensor" in str(one.type) and one.alias_info is None for one in signature.returns)
    return returns and any("Tensor" in str(one.type) for one in signature.arguments)
