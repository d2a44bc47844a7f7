"""``with amp.step() as s``: autocast around forward and loss, none around backward and the optimizer's step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor
from torch.nn.modules.module import register_module_forward_pre_hook

from amp_core.errors import ContractError
from amp_core.torch_private.autograd import autocast_depth

if TYPE_CHECKING:
    from amp_core.script.loop import Loop


class Step:
    """One step of the script, or one of the batches that a step accumulates.

    Autocast is open from the beginning. `backward` leaves it, with its copies of weights; the forward pass of any
    module opens a new one. Code between them, clipping for example, runs as plain torch.
    """

    def __init__(self, loop: Loop, samples: int | None) -> None:
        self._loop = loop
        self._close_up = loop.record.close_up
        self.samples = samples
        self._region: AbstractContextManager[Any] | None = None
        self._depth = 0  # of autocast regions, with this step's own
        self._hook: Any = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._loop.begin(self)
        self._stack.enter_context(self._close_up.block(self._loop.record.number + 1))
        self._open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._close()
        self._unhook()
        self._stack.close()
        self._loop.end(failed=kind is not None)

    def backward(self, loss: Tensor, **options: Any) -> None:
        """Gradients of the loss times the loss scale, outside autocast; ``options`` are those of `Tensor.backward`.

        Raises:
            ContractError: inside an autocast region of the script's own, for a loss of several numbers or without a
                gradient, or for the same loss a second time.
        """
        self._check_loss(loss)
        self.leave_autocast("s.backward()")
        self._loop.backward(loss, options)
        self._close_up.record(False)
        self._hook_forward()

    def unscale(self, *optimizers: torch.optim.Optimizer) -> None:
        """Divide the gradients of the optimizers (default: all) by the loss scale, before you clip or change them.

        Raises `ContractError` for an optimizer whose gradients are unscaled already.
        """
        self._loop.unscale(optimizers)

    def grad(self, outputs: Tensor | Sequence[Tensor], inputs: Any, **options: Any) -> tuple[Tensor, ...]:
        """`torch.autograd.grad` of scaled outputs, outside autocast, and unscaled again: for a gradient penalty."""
        self.leave_autocast("s.grad()")
        found = self._loop.grad(outputs, inputs, options)
        self._close_up.record(False)
        self._hook_forward()
        return found

    @contextmanager
    def autocast(self) -> Iterator[None]:
        """The recipe's autocast for code after `backward` that calls no module."""
        self._unhook()
        if self._region is not None:
            yield
            return
        self._close_up.record(True)
        with self._loop.prepared.precision.forward():
            yield
        self._close_up.record(False)
        self._hook_forward()

    def leave_autocast(self, what: str) -> None:
        """Close the region, so that its copies of weights go, for something that must not run in it.

        Raises `ContractError` where the script has opened another one inside.
        """
        if autocast_depth() > self._depth:
            raise ContractError(
                f"{what} inside a torch.autocast of your own: it would run in autocast, and weights keep their old "
                "low-precision copies; remove it, 'with amp.step()' opens the recipe's"
            )
        self._close()

    def _close(self) -> None:
        self._depth = 0
        region, self._region = self._region, None
        if region is not None:
            region.__exit__(None, None, None)

    def _open(self) -> None:
        self._close_up.record(True)
        self._region = self._loop.prepared.precision.forward()
        self._region.__enter__()
        self._depth = autocast_depth()

    def _hook_forward(self) -> None:
        """Open a region again when the next module, whichever it is, is called."""
        if self._hook is None:
            self._hook = register_module_forward_pre_hook(self._reopen)

    def _reopen(self, _module: torch.nn.Module, _args: Any) -> None:
        self._unhook()
        if self._region is None:
            self._open()

    def _unhook(self) -> None:
        hook, self._hook = self._hook, None
        if hook is not None:
            hook.remove()

    def _check_loss(self, loss: Tensor) -> None:
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            given = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
            raise ContractError(f"s.backward() got {given}: give one scalar tensor, such as loss.mean()")
        if not loss.requires_grad:
            raise ContractError(
                "s.backward() got a loss that depends on no parameter: look for a detach() or no_grad()"
            )
