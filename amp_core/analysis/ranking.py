"""Which modules low precision hurts most, from one FP32 pass in which every module also runs low on the same inputs.

The score of a module is Σ|∂L/∂y · (y_low − y_fp32)| over the elements of its outputs y: to first order, what its
rounding may do to the loss. Values outside the format's range come before any score.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from amp_core.analysis.start import Start, reference_recipe, rewind, step_at
from amp_core.config import TRUE_LOW, Recipe, RunConfig
from amp_core.forensics.attribution import ModuleClock
from amp_core.precision import Precision, precision_for
from amp_core.precision.fp32_modules import LOW_DTYPES, matching_modules
from amp_core.seeding import preserved_rng, rng_state, set_rng_state
from amp_core.step import TrainStep
from amp_core.torch_private.dispatcher import TorchDispatchMode, schema
from amp_core.torch_private.modules import drop_forward_hooks
from amp_core.torch_private.tensors import tree_leaves, tree_map
from amp_core.workload import Workload

LOST_SHARE = 0.5  # of a module's nonzero output gradients: then they count as out of range
MOVES = frozenset(
    {"bernoulli_", "detach", "view", "_unsafe_view", "t", "transpose", "permute", "expand", "reshape", "slice"}
    | {"select", "unsqueeze", "squeeze", "alias", "split", "unbind", "chunk", "as_strided", "clone", "_to_copy"}
    | {"copy_", "empty", "empty_like"}
)


@dataclass(slots=True)
class ModuleScore:
    """What one module's outputs showed, added up over its calls.

    ``error``: largest relative error of an output, in its 2-norm. ``overflow``: elements that are finite in FP32 and
    not in low precision. ``gradient_overflow`` and ``gradient_lost``: elements of ∂L/∂y, times the loss scale, that
    fp16 could not hold, of ``gradient_nonzero``.
    """

    module: str
    kind: str
    sensitivity: float = 0.0
    error: float = 0.0
    max_abs: float = 0.0
    overflow: int = 0
    gradient_overflow: int = 0
    gradient_lost: int = 0
    gradient_nonzero: int = 0
    own: bool = False  # whether it computes anything outside its children

    @property
    def out_of_range(self) -> bool:
        lost = self.gradient_lost > LOST_SHARE * self.gradient_nonzero > 0
        return bool(self.overflow or self.gradient_overflow or lost)


def rank(config: RunConfig, workload: Workload, start: Start, recipe: Recipe) -> list[ModuleScore]:
    """Scores of the modules that compute something, the most suspect first; without those the recipe keeps already.

    Scores are taken at the first of the start's steps.
    """
    step = step_at(config, workload, start, reference_recipe(config.recipe))
    low = precision_for(recipe, step.precision.device)
    kept = matching_modules(step.model, recipe.fp32_modules, "fp32_modules") if recipe.fp32_modules else {}
    taps = _Taps(step.model, low)
    with ExitStack() as stack:
        stack.enter_context(step.precision.applied(step.model))
        if recipe.precision not in TRUE_LOW:
            stack.enter_context(low.applied(step.model))
        with taps.watching():
            rewind(start, step)
            for batch in start.steps[0]:
                loss = _loss(step, batch)
                loss.backward()  # type: ignore[no-untyped-call]
    scored = [score for name, score in taps.scores.items() if score.own and not _within(name, kept)]
    return sorted(scored, key=lambda score: (score.out_of_range, score.sensitivity), reverse=True)


def _loss(step: TrainStep, batch: Any) -> Tensor:
    with step.precision.forward():
        return step.workload.loss(step.model, batch)


def _within(name: str, kept: dict[str, nn.Module]) -> bool:
    return any(name == one or name.startswith(f"{one}.") for one in kept)


class Scorer:
    """Compares what low precision gives with FP32, under the loss scale a recipe starts with."""

    def __init__(self, recipe: Recipe) -> None:
        scaler = recipe.scaler
        scaled = scaler is not None and recipe.precision == "16-mixed" and scaler.kind != "none"
        self._scale = scaler.init_scale if scaler is not None and scaled else 1.0
        self._half = recipe.precision in ("16-mixed", "16-true")

    def compare(self, score: ModuleScore, exact: Tensor, rounded: Tensor) -> None:
        """Note the output's error now, and its effect when the gradient comes."""
        if exact.shape != rounded.shape or not exact.numel():
            return
        error = rounded.detach().to(exact.dtype) - exact.detach()
        finite = torch.isfinite(error)
        score.overflow += int((torch.isfinite(exact) & ~torch.isfinite(rounded)).sum())
        error = torch.where(finite, error, torch.zeros_like(error))
        size = float(exact.detach().norm())
        score.error = max(score.error, float(error.norm()) / size if size > 0 else 0.0)
        score.max_abs = max(score.max_abs, float(exact.detach().abs().max()))
        if exact.requires_grad:
            exact.register_hook(partial(self._weigh, score, error))  # type: ignore[no-untyped-call]

    def _weigh(self, score: ModuleScore, error: Tensor, gradient: Tensor) -> None:
        score.sensitivity += float((gradient.detach() * error).abs().nansum())
        if not self._half:
            return
        scaled = gradient.detach().float() * self._scale
        halved = scaled.half()
        nonzero = torch.isfinite(scaled) & (scaled != 0)
        score.gradient_nonzero += int(nonzero.sum())
        score.gradient_lost += int((nonzero & (halved == 0)).sum())
        score.gradient_overflow += int((nonzero & torch.isinf(halved)).sum())


class _OwnWork(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's own
    """Notes which modules compute something themselves."""

    def __init__(self, taps: _Taps) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._taps = taps

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        module = self._taps.clock.module
        if module and not (self._taps.busy or self._taps.clock.paused):
            name = schema(func).name.split("::")[-1]
            if name not in MOVES:
                self._taps.scores[module].own = True
        return func(*args, **(kwargs or {}))


class _Taps:
    """Hooks that run each module a second time, low, and score the difference."""

    def __init__(self, model: nn.Module, low: Precision) -> None:
        self._model = model
        self._low = low
        self._copies: dict[str, nn.Module] = {}
        self._scorer = Scorer(low.recipe)
        self.clock = ModuleClock(model)
        self.busy = False
        self._rng: list[tuple[Tensor, Tensor | None]] = []  # at the entries of the modules that are running
        self.scores = {name: ModuleScore(name, type(m).__name__) for name, m in model.named_modules() if name}

    @contextmanager
    def watching(self) -> Iterator[None]:
        handles = []
        for name, module in self._model.named_modules():
            if name:
                handles.append(module.register_forward_pre_hook(self._note_rng))
                handles.append(module.register_forward_hook(self._hook(name), with_kwargs=True))
        try:
            with self.clock.watching(), _OwnWork(self):
                yield
        finally:
            for handle in handles:
                handle.remove()

    def _note_rng(self, _module: nn.Module, _args: Any) -> None:
        if not self.busy:
            self._rng.append(rng_state(self._low.device))

    def _hook(self, name: str) -> Any:
        def hook(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            if self.busy:
                return
            self.busy = True
            try:
                for exact, rounded in zip(
                    tree_leaves(output), tree_leaves(self._run_low(name, module, args, kwargs)), strict=False
                ):
                    if isinstance(exact, Tensor) and exact.is_floating_point() and isinstance(rounded, Tensor):
                        self._scorer.compare(self.scores[name], exact, rounded)
            except (RuntimeError, ValueError, TypeError):
                self.scores[name].error = math.nan  # it cannot run alone: the search will find out
            finally:
                self.busy = False

        return hook

    @torch.no_grad()
    def _run_low(self, name: str, module: nn.Module, args: Any, kwargs: Any) -> Any:
        """The module's output in low precision from the inputs and random numbers it had."""
        with preserved_rng(self._low.device):
            set_rng_state(self._rng.pop(), self._low.device)
            if self._low.recipe.precision in TRUE_LOW:
                dtype = torch.float16 if self._low.recipe.precision == "16-true" else torch.bfloat16
                if name not in self._copies:
                    self._copies[name] = _bare_copy(module).to(dtype)
                return self._copies[name](*_cast(args, dtype), **_cast(kwargs, dtype))
            buffers = {
                key: buffer.clone() for key, buffer in module.named_buffers()
            }  # the module's own stay as they are
            with self._low.forward():
                return functional_call(module, buffers, args, kwargs)


def _bare_copy(module: nn.Module) -> nn.Module:
    """A copy without hooks, so that it is not watched itself."""
    copied = copy.deepcopy(module)
    for one in copied.modules():
        drop_forward_hooks(one)
    return copied


def _cast(values: Any, dtype: torch.dtype) -> Any:
    wide = (torch.float32, *LOW_DTYPES)
    return tree_map(lambda v: v.to(dtype) if isinstance(v, Tensor) and v.dtype in wide else v, values)
