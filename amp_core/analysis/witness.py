"""One forward and backward pass of one batch, with what every module gave: in a recipe, in FP32 or in FP64."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from amp_core.analysis.start import Start, reference_recipe, rewind, step_at, trial_recipe
from amp_core.config import Recipe, RunConfig
from amp_core.forensics.attribution import caught
from amp_core.step import TrainStep
from amp_core.torch_private.modules import DROPOUT
from amp_core.torch_private.tensors import tree_leaves, tree_map
from amp_core.workload import Workload

HALVINGS = 40
Output = tuple[str, int]  # module and the number of its call


@dataclass(slots=True)
class Seen:
    """What one pass showed. ``outputs`` in execution order; ``gradients`` by module, unscaled.

    ``error`` and ``error_module`` say what was raised and where. ``scale`` is the loss scale at which gradients were
    finite, or the last one tried.
    """

    loss: float = math.nan
    outputs: dict[Output, Tensor] = field(default_factory=dict)
    gradients: dict[str, Tensor] = field(default_factory=dict)
    scale: float = 1.0
    error: str = ""
    error_module: str = ""


@dataclass(slots=True)
class Witness:
    """Runs batches from one start. ``evaluating`` puts the model into evaluation mode; else only dropout is off."""

    config: RunConfig
    workload: Workload
    start: Start
    evaluating: bool = False
    amplified: tuple[str, float] | None = None  # a module whose outputs are multiplied, and by how much

    def recipe(self, batch: Any, loss_factor: float = 1.0, fp32_modules: tuple[str, ...] = ()) -> Seen:
        """Under the recipe, with more modules kept in FP32 if asked for."""
        return self._run(trial_recipe(self.config.recipe, fp32_modules), batch, loss_factor, None)

    def fp32(self, batch: Any, loss_factor: float = 1.0) -> Seen:
        """In FP32."""
        return self._run(reference_recipe(self.config.recipe), batch, loss_factor, None)

    def fp64(self, batch: Any, loss_factor: float = 1.0) -> Seen:
        """In FP64: weights, buffers, inputs, and new tensors that ask for no type."""
        return self._run(reference_recipe(self.config.recipe), batch, loss_factor, torch.float64)

    def _run(self, recipe: Recipe, batch: Any, loss_factor: float, wide: torch.dtype | None) -> Seen:
        step = step_at(self.config, self.workload, self.start, recipe)
        if wide is not None:
            step.model.to(wide)
            batch = tree_map(lambda t: t.to(wide) if _is_float(t) else t, batch)
        _quieten(step.model, self.evaluating)
        seen = Seen()
        try:
            with ExitStack() as stack:
                stack.enter_context(step.precision.applied(step.model))
                stack.enter_context(_default_dtype(wide))
                stack.enter_context(self._tapped(step.model, seen))
                rewind(self.start, step)
                _pass(step, batch, loss_factor, seen)
        except (RuntimeError, ValueError, TypeError, IndexError, ArithmeticError) as error:
            found = caught(error, step.model)
            seen.error = f"{found.type}: {found.message}"
            seen.error_module = found.module or ""
        return seen

    @contextmanager
    def _tapped(self, model: nn.Module, seen: Seen) -> Iterator[None]:
        handles = []
        for name, module in model.named_modules():
            if name:
                handles.append(module.register_forward_hook(self._tap(name, seen)))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _tap(self, name: str, seen: Seen) -> Any:
        calls = 0

        def hook(_module: nn.Module, _args: Any, output: Any) -> Any:
            nonlocal calls
            if self.amplified is not None and self.amplified[0] == name:
                factor = self.amplified[1]
                output = tree_map(
                    lambda t: t * factor if isinstance(t, Tensor) and t.is_floating_point() else t, output
                )
            tensors = [t for t in tree_leaves(output) if isinstance(t, Tensor) and t.is_floating_point()]
            if tensors:
                seen.outputs.setdefault((name, calls), tensors[0].detach().clone())
            calls += 1
            return output

        return hook


def _pass(step: TrainStep, batch: Any, loss_factor: float, seen: Seen) -> None:
    """Forward once, backward at falling loss scales until the gradients are finite."""
    loss = step.forward(batch)
    seen.loss = float(loss.detach()) * loss_factor
    scaler = step.scaler
    scaled = scaler is not None and scaler.is_enabled()
    dynamic = scaled and scaler is not None and scaler.options.kind == "dynamic"
    seen.scale = float(scaler.current_scale) if scaled and scaler is not None else 1.0
    for _ in range(HALVINGS if dynamic else 1):
        step.clear()
        factor = torch.tensor(loss_factor * seen.scale, dtype=torch.float32, device=loss.device)
        (loss * factor).backward(retain_graph=True)  # type: ignore[no-untyped-call]
        seen.gradients = _gradients(step.model, seen.scale)
        if not math.isfinite(seen.loss) or all(bool(torch.isfinite(g).all()) for g in seen.gradients.values()):
            return
        if dynamic:
            seen.scale /= 2.0


def _gradients(model: nn.Module, scale: float) -> dict[str, Tensor]:
    found = {}
    for name, module in model.named_modules():
        own = [p.grad.detach().to_dense().reshape(-1) for p in module.parameters(recurse=False) if p.grad is not None]
        if own:
            found[name] = torch.cat([gradient.double() for gradient in own]) / scale
    return found


def _is_float(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _quieten(model: nn.Module, evaluating: bool) -> None:
    """No random numbers in forward: they would differ between widths."""
    if evaluating:
        model.eval()
    for module in model.modules():
        if isinstance(module, DROPOUT):
            module.eval()
        elif isinstance(module, nn.MultiheadAttention | nn.RNNBase):
            module.dropout = 0.0


@contextmanager
def _default_dtype(dtype: torch.dtype | None) -> Iterator[None]:
    if dtype is None:
        yield
        return
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
