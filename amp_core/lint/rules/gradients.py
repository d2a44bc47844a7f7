"""Scaled values used as if they were true: gradients edited, read or penalised, losses logged."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_core.lint.events import Event, Trace
from amp_core.lint.finding import Severity
from amp_core.lint.program import Program
from amp_core.lint.relations import after, before, overlap, scaled_backwards
from amp_core.lint.rule import rule
from amp_core.lint.values import Tensor


@rule(
    "AMP131",
    "gradient-edit-before-unscale",
    Severity.WARNING,
    what="Noise, a penalty, clamping or another edit is applied to gradients that carry the loss scale.",
    why="What is added to scaled gradients is divided by the scale afterwards: noise or weight decay shrinks "
    "65536-fold, and a clamp cuts at the wrong value. Replacing infinities hides the overflow that the scaler"
    " must see.",
    before="""
scaler.scale(loss).backward()
for p in model.parameters():
    p.grad.add_(torch.randn_like(p.grad) * 0.01)
scaler.step(optimizer)
scaler.update()
""",
    after="""
scaler.scale(loss).backward()
scaler.unscale_(optimizer)
for p in model.parameters():
    p.grad.add_(torch.randn_like(p.grad) * 0.01)
scaler.step(optimizer)
scaler.update()
""",
    fix="call scaler.unscale_(optimizer) before touching gradients",
)
def edit_before_unscale(program: Program) -> Iterator[tuple[ast.AST, str]]:
    for trace in program.traces:
        for edit in trace.of("grad_edit", "grad_replaced"):
            if _is_scaled(trace, edit) and not _scale_handled(trace, edit):
                yield (
                    edit.node,
                    "this changes gradients that are still multiplied by the loss scale: unscale_() must come first",
                )


def _is_scaled(trace: Trace, event: Event) -> bool:
    """Whether gradients are scaled here: after a scaled backward, before the step, not unscaled between."""
    if not before(scaled_backwards(trace), event) or not after(trace.of("step"), event):
        return False
    models = frozenset() if event.model is None else frozenset({event.model})
    for unscale in before(trace.of("unscale", "manual_unscale"), event):
        owner = unscale.optimizer.models if unscale.optimizer is not None else frozenset()
        if overlap(owner, models) is not False:
            return False
    return True


def _scale_handled(trace: Trace, event: Event) -> bool:
    """Whether the script reads the scale before it touches gradients: then it probably accounts for it."""
    return event.kind != "grad_replaced" and bool(
        [g for g in before(trace.of("get_scale"), event) if g.loops == event.loops]
    )


@rule(
    "AMP132",
    "scaled-gradients-read",
    Severity.WARNING,
    what="A norm or magnitude of gradients is taken while they carry the loss scale.",
    why="The number is off by a factor of the loss scale, which changes during training: logged norms jump by 2, "
    "and thresholds compare with the wrong thing.",
    before="""
scaler.scale(loss).backward()
norm = sum(p.grad.norm() for p in model.parameters())
scaler.step(optimizer)
scaler.update()
""",
    after="""
scaler.scale(loss).backward()
scaler.unscale_(optimizer)
norm = sum(p.grad.norm() for p in model.parameters())
scaler.step(optimizer)
scaler.update()
""",
    fix="call scaler.unscale_(optimizer) before reading gradients",
)
def scaled_gradients_read(program: Program) -> Iterator[tuple[ast.AST, str]]:
    for trace in program.traces:
        edited = [e for e in trace.of("grad_edit", "grad_replaced") if _is_scaled(trace, e)]
        for read in trace.of("grad_read"):
            if _is_scaled(trace, read) and not _scale_handled(trace, read) and not edited:
                yield (
                    read.node,
                    "these gradients are still multiplied by the loss scale: the number is off by that factor",
                )


@rule(
    "AMP133",
    "gradient-penalty-on-scaled-gradients",
    Severity.ERROR,
    what="Gradients from autograd.grad of a scaled loss enter a penalty without being divided by the scale.",
    why="The penalty is then of gradients 65536 times too large (squared: 4e9 times), overflows, and changes with"
    " the scale.",
    before="""
grads = torch.autograd.grad(scaler.scale(loss), list(model.parameters()), create_graph=True)
penalty = sum(g.pow(2).sum() for g in grads)
""",
    after="""
grads = torch.autograd.grad(scaler.scale(loss), list(model.parameters()), create_graph=True)
inv_scale = 1.0 / scaler.get_scale()
penalty = sum((g * inv_scale).pow(2).sum() for g in grads)
""",
    fix="multiply the gradients by 1 / scaler.get_scale() before making a penalty of them",
)
def penalty_on_scaled(program: Program) -> Iterator[tuple[ast.AST, str]]:
    for event in program.of("scaled_penalty"):
        yield (
            event.node,
            "these gradients come from a scaled loss: divide them by scaler.get_scale() before the penalty",
        )


@rule(
    "AMP134",
    "scaled-loss-used-as-metric",
    Severity.WARNING,
    what="A loss that was multiplied by the loss scale is logged, printed or summed up.",
    why="The number is off by the scale, and dividing by scaler.get_scale() after update() is wrong whenever the "
    "scale moved.",
    before="""
scaled = scaler.scale(loss)
scaled.backward()
scaler.step(optimizer)
scaler.update()
history.append(scaled.item())
""",
    after="""
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
history.append(loss.item())
""",
    fix="keep the unscaled loss under a name of its own, and log that",
)
def scaled_loss_logged(program: Program) -> Iterator[tuple[ast.AST, str]]:
    for event in program.of("scaled_read"):
        if event.detail == "stale":
            yield event.node, "the loss is divided by the scale of after update(), not by the one it was multiplied by"
        else:
            yield event.node, "this loss is multiplied by the loss scale: log the unscaled one"
    for event in program.of("accumulate"):
        value = event.detail[1]
        if isinstance(value, Tensor) and value.scaled is not None and value.detached and value.reading is None:
            yield event.node, "this loss is multiplied by the loss scale: sum up the unscaled one"
