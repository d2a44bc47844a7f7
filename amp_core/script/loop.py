"""The mechanics of script mode: where a block begins and ends, what backward, unscaling and the optimizer's step do."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from amp_core.clipping import clip_norm, clip_value
from amp_core.errors import ContractError
from amp_core.script.ledger import GradientLedger
from amp_core.script.prepared import Prepared
from amp_core.script.record import DoneStep, ScriptRecord, total_of
from amp_core.telemetry.gradients import gradient_norms
from amp_core.telemetry.timing import timer_for
from amp_core.torch_private import grad_scaler
from amp_core.torch_private.autograd import autocast_depth

if TYPE_CHECKING:
    from amp_core.script.step import Step


class Loop:
    """The state between the steps of one script. A step ends with the block in which an optimizer has stepped.

    Where the script calls ``optimizer.step()`` after the block, the step ends when the next block begins, or when
    something is asked that needs it ended. Methods raise `ContractError`, with what to do, before a wrong gradient is
    used.
    """

    def __init__(self, prepared: Prepared, record: ScriptRecord) -> None:
        self.prepared = prepared
        self.record = record
        self.block: Step | None = None
        self.num_backwards = 0
        self._scaler = prepared.scaler
        self._timer = timer_for(prepared.precision.device)
        self._losses: list[Tensor] = []
        self._norms: dict[int, Tensor | None] = {}
        self._num_samples = 0
        self._closed_at = time.perf_counter()

    @property
    def is_pending(self) -> bool:
        """Whether an optimizer has stepped in a step that has not ended."""
        return any(ledger.has_stepped for ledger in self.prepared.ledgers)

    @property
    def is_accumulating(self) -> bool:
        """Whether gradients wait for the optimizer's step."""
        return any(ledger.is_open for ledger in self.prepared.ledgers)

    def check_begin(self) -> None:
        """Raise `ContractError` where no block may begin."""
        if self.block is not None:
            raise ContractError("amp.step() inside another amp.step(): close the first block before the second")
        if autocast_depth() > 0:
            raise ContractError(
                "amp.step() inside a torch.autocast of your own: its low-precision copies of weights would outlive the "
                "optimizer's step; remove it, amp.step() opens the recipe's"
            )

    def begin(self, block: Step) -> None:
        """A block opens."""
        self.block = block
        self._timer.start()

    def end(self, *, failed: bool) -> None:
        """A block closes."""
        assert self.block is not None
        self._timer.stop()
        self._num_samples += self.block.samples or 0
        self.block = None
        if not failed:
            self.close()

    def backward(self, loss: Tensor, options: dict[str, Any]) -> None:
        """Gradients of the loss times the loss scale."""
        if self.block is None:
            raise ContractError("s.backward() after its block: call it inside 'with amp.step() as s'")
        if any(loss is other for other in self._losses) and "inputs" not in options:
            raise ContractError("s.backward() came twice for the same loss: its gradient would count twice; drop one")
        for ledger in self.prepared.ledgers:
            ledger.before_backward()
        scaled = loss if self._scaler is None else self._scaler.scale(loss)
        scaled.backward(**options)  # type: ignore[no-untyped-call]
        for ledger in self.prepared.ledgers:
            if ledger.after_backward() and ledger.is_unscaled and not ledger.has_stepped and self._scaler is not None:
                raise ContractError(
                    f"s.backward() after s.unscale() of {ledger.label}: scaled gradients were added to unscaled ones; "
                    "unscale after the last backward of the step"
                )
        self._losses.append(loss)
        self.num_backwards += 1

    def grad(self, outputs: Any, inputs: Any, options: dict[str, Any]) -> tuple[Tensor, ...]:
        """`torch.autograd.grad` through scaled outputs, divided by the scale again without waiting for the device."""
        scaler = self._scaler if self._scaler is not None and self._scaler.is_enabled() else None
        found: tuple[Tensor, ...] = torch.autograd.grad(
            outputs if scaler is None else scaler.scale(outputs), inputs, **options
        )
        if scaler is None:
            return found
        inverse = scaler.current_scale.reciprocal()
        return tuple(each if each is None else each * inverse for each in found)

    def unscale(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        """Divide gradients by the scale, once a step; without names those of every optimizer that has new ones."""
        named = [self.prepared.ledger(optimizer) for optimizer in optimizers]
        chosen = named or [ledger for ledger in self.prepared.ledgers if ledger.is_open]
        if not chosen:
            raise ContractError("s.unscale() found no gradients: call s.backward(loss) before")
        for ledger in chosen:
            if ledger.is_unscaled:
                raise ContractError(
                    f"s.unscale() of {ledger.label} came twice in one step: its gradients would be divided by the loss "
                    "scale twice; drop one"
                )
            ledger.check_step(scales=self._scaler is not None)
            self._unscale(ledger)

    def step(self, ledger: GradientLedger, original: Callable[[], Any]) -> None:
        """``optimizer.step()``: unscale and clip if that has not been done, then step unless a gradient overflowed."""
        if self.block is not None:
            self.block.leave_autocast(f"step() of {ledger.label}")
        self.record.close_up.record(False)
        if not ledger.has_gradients:
            raise ContractError(f"step() of {ledger.label} without gradients: call s.backward(loss) before")
        ledger.check_step(scales=self._scaler is not None)
        if not ledger.is_unscaled:
            self._unscale(ledger)
        self._clip(ledger)
        if self._scaler is None:
            original()
            ledger.stepped(None)
        else:
            self._scaler.step(ledger.optimizer)
            ledger.stepped(grad_scaler.found_infs_of(self._scaler, ledger.optimizer))

    def close(self) -> None:
        """End the step if an optimizer has stepped in it: move scale and average, note what happened."""
        if self.block is not None or not self.is_pending:
            return
        prepared = self.prepared
        prepared.real_steps.settle()
        outcome = self._scaler.conclude() if self._scaler is not None else None
        prepared.real_steps.note(outcome.found_inf if outcome is not None else None)
        now = time.perf_counter()
        losses = [loss.detach().reshape(()) for loss in self._losses]
        done = DoneStep(
            loss=total_of(losses, prepared.precision.device), norms=self._all_norms(), outcome=outcome,
            num_samples=self._num_samples, duration=self._timer.take(), iteration_s=now - self._closed_at,
            learning_rate=float(prepared.optimizers[0].param_groups[0]["lr"]) if prepared.schedules else None,
        )  # fmt: skip
        self._closed_at = now
        for ledger in prepared.ledgers:
            ledger.closed()
        self._losses, self._norms, self._num_samples = [], {}, 0
        self.record.note(done)

    def _unscale(self, ledger: GradientLedger) -> None:
        if self._scaler is not None:
            self._scaler.unscale_(ledger.optimizer)
        ledger.unscaled()
        self._norms[id(ledger)] = gradient_norms(ledger.parameters)
        self.record.close_up.look_at_gradients(self.record.number + 1, ledger.parameters)

    def _clip(self, ledger: GradientLedger) -> None:
        recipe = self.prepared.precision.recipe
        if recipe.clip_norm is not None:
            clip_norm(ledger.parameters, recipe.clip_norm, self._norms.get(id(ledger)))
        elif recipe.clip_value is not None:
            clip_value(ledger.parameters, recipe.clip_value)

    def _all_norms(self) -> Tensor | None:
        """The gradient norm of every parameter, zero where its optimizer did not step, `(P,)`."""
        parts = []
        for ledger in self.prepared.ledgers:
            norms = self._norms.get(id(ledger))
            empty = torch.zeros(len(ledger.parameters), device=self.prepared.precision.device)
            parts.append(empty if norms is None else norms.float())
        return parts[0] if len(parts) == 1 else torch.cat(parts)
