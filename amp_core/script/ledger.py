"""What the contract of script mode knows of an optimizer's gradients: who changed them, and when."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from amp_core.errors import ContractError
from amp_core.torch_private.autograd import version

MAX_WATCHED = 16  # parameters, evenly spread: what changes gradients changes all of them, and looking costs time
MAX_UNJUDGED = 1000  # steps whose outcome may stay on the device when no schedule asks for it
Mark = tuple[int, int] | None  # identity and version of a gradient; None where there is none


class GradientLedger:
    """Follows the gradients of one optimizer's parameters through a step. Nothing here waits for the device."""

    def __init__(self, optimizer: torch.optim.Optimizer, label: str) -> None:
        self.optimizer = optimizer
        self.label = label
        self.parameters: list[nn.Parameter] = [p for group in optimizer.param_groups for p in group["params"]]
        self._watched = self.parameters[:: max(1, -(-len(self.parameters) // MAX_WATCHED))]
        self.is_unscaled = False  # since the last update
        self.has_stepped = False  # in this step
        self._is_spent = False  # its gradients have been used and not cleared
        self._is_mixed = False  # spent gradients have had new ones added to them
        self.num_real_steps = 0
        self._unjudged: list[list[Tensor]] = []
        self._marks = self._now()

    def before_backward(self) -> None:
        """A backward pass begins: are gradients of an earlier step still there?"""
        if not self._is_spent:
            return
        if self._left() and self._now() == self._marks:
            self._is_mixed = True
        else:
            self._is_spent = self._is_mixed = False

    def after_backward(self) -> bool:
        """A backward pass has ended; return whether it gave this optimizer gradients."""
        before, self._marks = self._marks, self._now()
        return self._marks != before

    def unscaled(self) -> None:
        """The gradients were divided by the loss scale; from here on they may be changed."""
        self.is_unscaled = True
        self._marks = self._now()

    def check_step(self, *, scales: bool) -> None:
        """Raise `ContractError` if ``optimizer.step()`` would use gradients that are not what they should be."""
        if self.has_stepped:
            raise ContractError(
                f"step() of {self.label} came twice in one step: its gradients were unscaled and used already; open "
                "another 'with amp.step()' for the second"
            )
        now = self._now()
        if self._is_mixed or (self._is_spent and self._left() and now == self._marks):
            raise ContractError(
                f"step() of {self.label} would use gradients of the step before: they were not cleared, and new ones "
                f"were {'added to them at another loss scale' if self._is_mixed else 'not computed'}; call "
                "zero_grad() once a step"
            )
        if self._left() and not self.is_unscaled:
            self._check_untouched(now, scales=scales)

    def stepped(self, found_infs: list[Tensor] | None) -> None:
        """The optimizer has used its gradients, unless ``found_infs`` hold something above 0; nothing waits here."""
        self.has_stepped = self._is_spent = True
        if found_infs is None:
            self.num_real_steps += 1
        else:
            self._unjudged.append(found_infs)
            if len(self._unjudged) > MAX_UNJUDGED:
                self.count_real_steps()
        self._is_mixed = False
        self._marks = self._now()

    def closed(self) -> None:
        """The step is over."""
        self.has_stepped = self.is_unscaled = False

    def count_real_steps(self) -> int:
        """How many steps changed the weights; waits for the device where some are not known yet."""
        for found in self._unjudged:
            self.num_real_steps += not any(float(each) for each in found)
        self._unjudged.clear()
        return self.num_real_steps

    @property
    def has_gradients(self) -> bool:
        """Whether there is any gradient, old or new."""
        return self._left()

    @property
    def is_open(self) -> bool:
        """Whether gradients wait for a step, as between the batches that one step accumulates."""
        return not self._is_spent and self._left()

    def _check_untouched(self, now: Sequence[Mark], *, scales: bool) -> None:
        for parameter, mark, seen in zip(self._watched, now, self._marks, strict=True):
            if mark == seen:
                continue
            if seen is None:
                raise ContractError(
                    f"{self.label} has gradients that s.backward() did not give: call s.backward(loss) instead of "
                    "loss.backward(), which would run inside autocast and without the loss scale"
                )
            if scales:
                raise ContractError(
                    f"the gradient of a parameter of shape {tuple(parameter.shape)} of {self.label} was changed while "
                    "it was still multiplied by the loss scale (by clipping, noise or a second backward): call "
                    "s.unscale() before"
                )

    def _left(self) -> bool:
        return any(p.grad is not None for p in self.parameters)

    def _now(self) -> list[Mark]:
        return [None if (g := p.grad) is None else (id(g), version(g)) for p in self._watched]
