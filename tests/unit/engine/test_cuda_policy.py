"""Emulated fp16 takes every dtype decision that CUDA's autocast takes, and rounds where tensor cores round."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from autocast_cases import CUDA_CASES, UNLISTED_CASES, Call, Inputs
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves

from amp_core.precision import oplists
from amp_core.precision.emulated import autocast_ops, cuda_rules

HALF, SINGLE = torch.float16, torch.float32
NEEDS_A_KERNEL_OF_CUDA = {"_scaled_dot_product_flash_attention"}  # reached on a CPU through SDPA only

# FakeTensorMode cannot slice CUDA tensors without CUDA, nor shape a fused GRU cell; here the answer is stated instead.
BEYOND_THE_ORACLE = {
    ("gru_cell", HALF): HALF,
    ("gru_cell", SINGLE): HALF,
    ("grid_sampler", HALF): SINGLE,
    ("grid_sampler", SINGLE): SINGLE,
    **{
        (name, dtype): dtype for name in ("batch_norm", "unfold", "grid_sample of one type") for dtype in (HALF, SINGLE)
    },
}


@contextmanager
def emulated_autocast() -> Iterator[None]:
    with cuda_rules(), torch.autocast("cpu", dtype=HALF):
        yield


@contextmanager
def fake_cuda_autocast() -> Iterator[None]:
    """CUDA's real autocast over tensors without storage: the oracle for dtypes, on a machine without CUDA."""
    enabled, dtype = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
    with FakeTensorMode():
        torch.set_autocast_enabled("cuda", True)
        torch.set_autocast_dtype("cuda", HALF)
        try:
            yield
        finally:
            torch.set_autocast_enabled("cuda", enabled)
            torch.set_autocast_dtype("cuda", dtype)


def dtypes(result: Any) -> list[torch.dtype]:
    return [leaf.dtype for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]


@pytest.mark.filterwarnings("ignore:at..nuclear_norm is deprecated")
@pytest.mark.parametrize("dtype", [HALF, SINGLE], ids=["half", "single"])
@pytest.mark.parametrize("name", [*CUDA_CASES, *UNLISTED_CASES])
def test_output_dtype_is_cudas(name: str, dtype: torch.dtype) -> None:
    call: Call = {**CUDA_CASES, **UNLISTED_CASES}[name]
    if (name, dtype) in BEYOND_THE_ORACLE:
        expected = [BEYOND_THE_ORACLE[name, dtype]]
    else:
        with fake_cuda_autocast():
            expected = dtypes(call(Inputs("cuda"), dtype))
    with emulated_autocast():
        assert dtypes(call(Inputs("cpu"), dtype)) == expected


class Differentiable(Inputs):
    """Asks for the gradient of the first floating input."""

    def __init__(self) -> None:
        super().__init__("cpu")
        self.first: Tensor | None = None

    def __call__(self, *shape: int, dtype: torch.dtype = SINGLE) -> Tensor:
        made = super().__call__(*shape, dtype=dtype)
        if self.first is None:
            self.first = made.requires_grad_()
        return made


@pytest.mark.filterwarnings("ignore:at..nuclear_norm is deprecated")
@pytest.mark.parametrize("name", [*CUDA_CASES, *UNLISTED_CASES])
def test_backward_runs_and_keeps_types(name: str) -> None:
    inputs = Differentiable()
    with emulated_autocast():
        result = {**CUDA_CASES, **UNLISTED_CASES}[name](inputs, HALF)
    outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor) and leaf.requires_grad]
    torch.stack([output.float().sum() for output in outputs]).sum().backward()
    assert inputs.first is not None
    assert inputs.first.grad is not None
    assert inputs.first.grad.dtype is inputs.first.dtype


def test_every_operation_of_this_torch_has_a_place() -> None:
    ours = (
        oplists.TENSOR_CORE
        | oplists.TENSOR_CORE_CHAIN
        | oplists.FP32
        | oplists.PROMOTE
        | oplists.PROMOTE_PRODUCT
        | oplists.BANNED
        | oplists.UNREACHABLE
    )
    assert autocast_ops("AutocastCUDA") == ours
    tested = set(CUDA_CASES) | oplists.BANNED | oplists.UNREACHABLE | NEEDS_A_KERNEL_OF_CUDA
    assert ours == tested, "each listed operation has a case"
