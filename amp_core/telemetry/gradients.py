"""Statistics of gradients: norms each step, per-module counts on sampled steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from amp_core.events import ModuleStatistics
from amp_core.torch_private.tensors import foreach_norm


def dense(gradient: Tensor) -> Tensor:
    """The gradient's stored values: itself, or the values of a sparse one."""
    return gradient.coalesce().values() if gradient.is_sparse else gradient


class GradientNorms:
    """Takes the norms of the same parameters' gradients step after step; nothing waits for the device."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self._parameters = tuple(parameters)
        self._are_ordinary = all(p.dtype is torch.float32 for p in self._parameters)  # dense FP32, none missing

    def __call__(self) -> Sequence[Tensor] | None:
        """The 2-norm of each gradient, `()` FP32 each, 0 where there is none; None without any gradient."""
        if self._are_ordinary:
            try:
                return foreach_norm([p.grad for p in self._parameters])  # type: ignore[misc]  # as below
            except (TypeError, NotImplementedError):  # one is None, or sparse: cheaper to be told than to look
                self._are_ordinary = False
        gradients = [dense(p.grad) for p in self._parameters if p.grad is not None]
        if not gradients:
            return None
        norms = _norms(gradients)
        if len(norms) == len(self._parameters):
            return norms
        zero, found = torch.zeros_like(norms[0]), iter(norms)
        return [zero if p.grad is None else next(found) for p in self._parameters]


def gradient_norms(parameters: Sequence[nn.Parameter]) -> Tensor | None:
    """What `GradientNorms` gives once, as `(P,)` on the device."""
    norms = GradientNorms(parameters)()
    return None if norms is None else torch.stack(list(norms))


def _norms(gradients: list[Tensor]) -> Sequence[Tensor]:
    if all(gradient.dtype is torch.float32 for gradient in gradients):
        return foreach_norm(gradients)
    return foreach_norm(gradients, 2, dtype=torch.float32)  # squares of halves overflow in half


def fp16_underflow_count(values: Tensor, scale: Tensor | float = 1.0) -> Tensor:
    """How many nonzero elements fp16 turns into zero after multiplication by ``scale``; a 0-dim int64 tensor.

    By the cast itself: a magnitude of at most 2**-25 rounds to zero, ties to even. NaN and infinity never do.
    """
    return torch.count_nonzero(values) - torch.count_nonzero((values * scale).half())


@dataclass(frozen=True, slots=True)
class OwnedParameters:
    """The parameters a module owns itself, not through a child."""

    module: str
    parameters: tuple[nn.Parameter, ...]


def owners(model: nn.Module, order: Sequence[str] | None = None) -> list[OwnedParameters]:
    """Modules that own trainable parameters, in the given order of names (default: definition order)."""
    modules = dict(model.named_modules())
    found = []
    for name in modules if order is None else order:
        own = tuple(p for p in modules[name].parameters(recurse=False) if p.requires_grad)
        if own:
            found.append(OwnedParameters(name, own))
    return found


def forward_order(model: nn.Module, run: Callable[[], Tensor]) -> tuple[list[str], Tensor]:
    """Names of all modules in the order of their first call during ``run``, and what ``run`` returned.

    A module that is never called (its weights are used by its parent) follows its predecessor in definition order.
    """
    with calls_noted(model) as called:
        result = run()
    return in_call_order(model, called), result


@contextmanager
def calls_noted(model: nn.Module) -> Iterator[dict[str, None]]:
    """The names of the modules called inside, as they are called first."""
    names = {module: name for name, module in model.named_modules()}
    called: dict[str, None] = {}

    def note(module: nn.Module, _args: object) -> None:
        called.setdefault(names[module])

    handles = [module.register_forward_pre_hook(note) for module in names]
    try:
        yield called
    finally:
        for handle in handles:
            handle.remove()


def in_call_order(model: nn.Module, called: Iterable[str]) -> list[str]:
    """Names of all modules; one that was not called follows its predecessor in definition order."""
    order = list(called)
    previous: str | None = None
    for name, _ in model.named_modules():
        if name not in called:
            order.insert(0 if previous is None else order.index(previous) + 1, name)
        previous = name
    return order


@dataclass(frozen=True, slots=True)
class GradientCounts:
    """Counts over the gradients of one module. ``nonzero`` and ``lost`` compare with a reference: None without one."""

    module: str
    num_elements: int
    zeros: int
    max_abs: float
    nonzero: int | None
    lost: int | None

    @property
    def zero_fraction(self) -> float:
        return self.zeros / self.num_elements if self.num_elements else float("nan")

    def statistics(self) -> ModuleStatistics:
        """The event's form; the underflow fraction is NaN where it was not measured."""
        return ModuleStatistics(
            module=self.module,
            num_elements=self.num_elements,
            zero_fraction=self.zero_fraction,
            underflow_fraction=underflow_fraction([self]),
            max_abs=self.max_abs,
        )


def underflow_fraction(counts: Sequence[GradientCounts]) -> float:
    """Share of the elements nonzero in the reference that are zero here; NaN if there was no reference."""
    lost = sum(each.lost or 0 for each in counts)
    nonzero = sum(each.nonzero or 0 for each in counts)
    if all(each.nonzero is None for each in counts):
        return float("nan")
    return lost / nonzero if nonzero else 0.0


def count_gradients(
    owned: Sequence[OwnedParameters], reference: Sequence[OwnedParameters] | None = None
) -> list[GradientCounts]:
    """Counts over the gradients in ``.grad``, module by module. Waits for the device once.

    ``reference`` holds the same modules of an FP32 copy after backward on the same batch: an element that is nonzero
    there and zero here has underflowed. Modules without any gradient are left out.
    """
    rows: list[Tensor] = []
    named: list[tuple[str, int]] = []
    for index, owner in enumerate(owned):
        exact = reference[index].parameters if reference is not None else owner.parameters
        pairs = [
            _gradient_pair(p, e)
            for p, e in zip(owner.parameters, exact, strict=True)
            if p.grad is not None and p.grad.numel()
        ]
        if pairs:
            named.append((owner.module, sum(gradient.numel() for gradient, _ in pairs)))
            rows.append(torch.stack([_counts_of(*pair) for pair in pairs]))
    totals = [torch.cat([row[:, :3].sum(dim=0), row[:, 3:].amax(dim=0)]) for row in rows]
    figures = torch.stack(totals).tolist() if totals else []
    return [
        GradientCounts(
            module=module,
            num_elements=size,
            zeros=int(zeros),
            max_abs=peak,
            nonzero=None if reference is None else int(nonzero),
            lost=None if reference is None else int(lost),
        )
        for (module, size), (zeros, nonzero, lost, peak) in zip(named, figures, strict=True)
    ]


def _gradient_pair(parameter: nn.Parameter, exact: nn.Parameter) -> tuple[Tensor, Tensor]:
    """A gradient and its reference: itself, the other's, or zeros where the other has none."""
    assert parameter.grad is not None
    if exact is parameter:
        gradient = dense(parameter.grad)
        return gradient, gradient
    if parameter.grad.is_sparse or exact.grad is None:
        gradient = parameter.grad.to_dense()
        return gradient, torch.zeros_like(gradient) if exact.grad is None else exact.grad.to_dense()
    return parameter.grad, exact.grad


def _counts_of(gradient: Tensor, exact: Tensor) -> Tensor:
    """Zeros, reference nonzeros, lost elements and largest magnitude as `(4,)` float64."""
    nonzero = torch.count_nonzero(gradient)
    zeros = gradient.numel() - nonzero
    low, high = torch.aminmax(gradient)
    if exact is gradient:
        present, lost = nonzero, torch.zeros_like(nonzero)
    else:
        present = torch.count_nonzero(exact)
        lost = torch.count_nonzero((gradient == 0) & (exact != 0))
    return torch.stack([zeros.double(), present.double(), lost.double(), torch.maximum(low.abs(), high.abs()).double()])
