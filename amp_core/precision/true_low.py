"""Weights, activations and gradients in one low type, without autocast and without FP32 master weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from amp_core.precision.base import Fp32
from amp_core.precision.fp32_modules import LOW_DTYPES, matching_modules
from amp_core.torch_private.tensors import tree_map


class Bf16True(Fp32):
    """Everything in bfloat16: the model's floating inputs are cast, its outputs come back in FP32 for the loss.

    While the model runs, new tensors are created in bfloat16 too, as in Lightning's ``bf16-true``.
    """

    lowers = True
    dtype: ClassVar[torch.dtype] = torch.bfloat16

    def prepare(self, model: nn.Module) -> None:
        """Lower the weights and buffers; modules kept in FP32 keep theirs."""
        kept = matching_modules(model, self.recipe.fp32_modules, "fp32_modules").values()
        exact = {id(tensor) for module in kept for tensor in [*module.parameters(), *module.buffers()]}
        for module in model.modules():
            own = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
            for tensor in own:
                if tensor.is_floating_point() and id(tensor) not in exact:
                    tensor.data = tensor.data.to(self.dtype)
        super().prepare(model)

    @contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        with low_at_the_edges(model), super().applied(model):
            yield

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "weights": str(self.dtype).removeprefix("torch.")}


class Fp16True(Bf16True):
    """Everything in float16, by the device's own kernels; nothing protects small gradients or updates."""

    dtype = torch.float16


@contextmanager
def low_at_the_edges(model: nn.Module) -> Iterator[None]:
    """Cast what enters the model to the type of its weights, and floating outputs to FP32; copies do the same."""

    def enter(module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
        dtype = _weight_dtype(module)
        torch.set_default_dtype(dtype)

        def cast(value: Any) -> Any:
            return value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value

        return tree_map(cast, args), tree_map(cast, kwargs)

    def leave(_module: nn.Module, _args: Any, output: Any) -> Any:
        torch.set_default_dtype(torch.float32)
        return tree_map(lambda v: v.float() if isinstance(v, Tensor) and v.is_floating_point() else v, output)

    handles = [
        model.register_forward_pre_hook(enter, with_kwargs=True),
        model.register_forward_hook(leave, always_call=True),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _weight_dtype(module: nn.Module) -> torch.dtype:
    """The low type among the weights, or FP32 for a copy that was raised."""
    return next((p.dtype for p in module.parameters() if p.dtype in LOW_DTYPES), torch.float32)
