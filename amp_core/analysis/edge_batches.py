"""Edge cases of a batch, made from an ordinary one: what is scaled, blanked, cut or repeated follows from its tensors.

Inputs are all tensors but the targets: the last part of a tuple or list, and what a dict calls so. Integers that are 0
or 1 throughout and booleans are masks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

TARGETS = frozenset({"label", "labels", "target", "targets", "y"})
MAX_ELEMENTS = 1 << 21  # of a repeated batch
Change = Callable[[Tensor], Tensor]


class NotApplicable(ValueError):
    """The batch holds nothing that the case changes."""


def edge_batch(case: str, batch: Any) -> Any:
    """The batch of a case of `amp_core.analyses.STRESS_CASES`; the same one where the case is not about data.

    Raises:
        NotApplicable: if the case needs something this batch does not hold.
    """
    if case in _CONTENT:
        masks, floats, integers = _CONTENT[case]
        if masks is not None and any(is_mask(tensor) for tensor in _inputs(batch)):
            return _changed(batch, lambda t: masks(t) if is_mask(t) else t)
        return _changed(batch, lambda t: _by_kind(t, floats, integers))
    if case in _SHAPES:
        return _reshaped(batch, _SHAPES[case](batch))
    return batch


def is_mask(tensor: Tensor) -> bool:
    """Booleans, and integers of at least two dimensions that are only 0 and 1."""
    if tensor.dtype is torch.bool:
        return True
    whole = not tensor.is_floating_point() and tensor.ndim >= 2 and tensor.numel() > 0
    return whole and bool(((tensor == 0) | (tensor == 1)).all())


def _by_kind(tensor: Tensor, floats: Change | None, integers: Change | None) -> Tensor:
    change = floats if tensor.is_floating_point() else None if is_mask(tensor) else integers
    return tensor if change is None else change(tensor)


def _inputs(batch: Any) -> list[Tensor]:
    found: list[Tensor] = []
    _map_inputs(batch, lambda tensor: found.append(tensor) or tensor)  # type: ignore[func-returns-value]  # it notes
    return found


def _changed(batch: Any, change: Change) -> Any:
    """The batch with changed inputs. Raises `NotApplicable` if that changes nothing."""
    done: list[bool] = []

    def noted(tensor: Tensor) -> Tensor:
        new = change(tensor)
        done.append(new is not tensor)
        return new

    result = _map_inputs(batch, noted)
    if not any(done):
        raise NotApplicable("the batch holds no input of the kind that this case changes")
    return result


def _map_inputs(batch: Any, change: Change) -> Any:
    if isinstance(batch, Tensor):
        return change(batch)
    if isinstance(batch, dict):
        return {key: part if key in TARGETS else _map_inputs(part, change) for key, part in batch.items()}
    if isinstance(batch, tuple | list):
        inputs = len(batch) if len(batch) < 2 else len(batch) - 1
        parts = [_map_inputs(part, change) if place < inputs else part for place, part in enumerate(batch)]
        return _like(batch, parts)
    return batch


def _reshaped(batch: Any, change: Change) -> Any:
    """The batch with every tensor cut or repeated, targets too."""
    if isinstance(batch, Tensor):
        return change(batch) if batch.ndim else batch
    if isinstance(batch, dict):
        return {key: _reshaped(part, change) for key, part in batch.items()}
    if isinstance(batch, tuple | list):
        return _like(batch, [_reshaped(part, change) for part in batch])
    return batch


def _like(batch: Any, parts: list[Any]) -> Any:
    return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)


def _first_row(tensor: Tensor) -> Tensor:
    blanked = tensor.clone()
    blanked[:1] = 0
    return blanked


def _flat(tensor: Tensor) -> Tensor:
    """Each sample's values replaced by their mean, or by its first integer."""
    if tensor.ndim < 2:
        return tensor
    rows = tensor.reshape(tensor.shape[0], -1)
    value = rows.mean(dim=1) if tensor.is_floating_point() else rows[:, 0]
    return value.reshape(-1, *[1] * (tensor.ndim - 1)).expand_as(tensor).clone()


def _scaled_to(largest: float) -> Change:
    def change(tensor: Tensor) -> Tensor:
        peak = float(tensor.abs().max()) if tensor.numel() else 0.0
        return tensor * (largest / peak) if peak > 0 else tensor

    return change


def _moved_up(tensor: Tensor) -> Tensor:
    return tensor + (5000 - tensor.max()) if tensor.numel() else tensor


def _repeat(batch: Any) -> Change:
    size = max((tensor.numel() for tensor in _inputs(batch)), default=1)
    times = max(1, min(16, MAX_ELEMENTS // max(size, 1)))
    return lambda tensor: tensor.repeat(times, *[1] * (tensor.ndim - 1))


def _lengthened(batch: Any) -> Change:
    length = _length(batch)
    return lambda t: t.repeat(1, 4, *[1] * (t.ndim - 2)) if t.ndim >= 2 and t.shape[1] == length else t


def _odd(batch: Any) -> Change:
    length = _length(batch)

    def change(tensor: Tensor) -> Tensor:
        size = tensor.shape[0] - (1 - tensor.shape[0] % 2)
        cut = tensor[: max(size, 1)]
        return cut[:, : length - 1] if cut.ndim >= 2 and cut.shape[1] == length and length > 1 else cut

    return change


def _length(batch: Any) -> int:
    """The second dimension of the first input that has one."""
    for tensor in _inputs(batch):
        if tensor.ndim >= 2:
            return tensor.shape[1]
    raise NotApplicable("no input has a second dimension")


_CONTENT: dict[str, tuple[Change | None, Change | None, Change | None]] = {
    # what masks become; where there is none or no mask: what floating-point and integer inputs become
    "masked_rows": (_first_row, _first_row, _first_row),
    "all_masked": (torch.zeros_like, torch.zeros_like, torch.zeros_like),
    "zero_variance": (None, _flat, _flat),
    "zero_vectors": (None, torch.zeros_like, None),
    "huge_inputs": (None, _scaled_to(6e4), None),
    "beyond_fp16": (None, _scaled_to(1e6), None),
    "tiny_inputs": (None, _scaled_to(1e-7), None),
    "large_integers": (None, None, _moved_up),
}
_SHAPES: dict[str, Callable[[Any], Change]] = {
    "long_reduction": _repeat,
    "long_sequence": _lengthened,
    "odd_shape": _odd,
    "one_sample": lambda _batch: lambda tensor: tensor[:1],
    "empty_batch": lambda _batch: lambda tensor: tensor[:0],
}
