"""Gradient accumulation: what must happen once per step, and what once per micro-batch."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_core.lint.events import Event, Trace, extra_conditions, together, within
from amp_core.lint.finding import Severity
from amp_core.lint.program import Program
from amp_core.lint.relations import scaled_backwards
from amp_core.lint.rule import rule

EVERY = "{} runs for every micro-batch, but {} only after several: gradients are accumulated for nothing"


@rule(
    "AMP121",
    "step-every-microbatch",
    Severity.WARNING,
    what="With gradient accumulation, step() or update() runs for every micro-batch instead of once per step.",
    why="Gradients of one optimizer step must all carry one scale: update() may change it between micro-batches. "
    "A step() per micro-batch applies partial sums, and a zero_grad() per micro-batch throws them away.",
    before="""
for i, (x, y) in enumerate(loader):
    with autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y) / 4
    scaler.scale(loss).backward()
    if (i + 1) % 4 == 0:
        scaler.step(optimizer)
        optimizer.zero_grad()
    scaler.update()
""",
    after="""
for i, (x, y) in enumerate(loader):
    with autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y) / 4
    scaler.scale(loss).backward()
    if (i + 1) % 4 == 0:
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
""",
    fix="keep unscale_, clipping, step, update and zero_grad together in the branch that ends an accumulation",
)
def step_every_microbatch(program: Program) -> Iterator[tuple[ast.AST, str]]:
    for trace in program.traces:
        for backward in scaled_backwards(trace):
            if backward.loops:
                yield from _judge(trace, backward)


def _judge(trace: Trace, backward: Event) -> Iterator[tuple[ast.AST, str]]:
    steps = _ours(trace, backward, "step")
    updates = _ours(trace, backward, "update")
    zeros = [z for z in trace.of("zero_grad") if within(z, backward) and together(z, backward)]
    outer_zeros = [z for z in trace.of("zero_grad") if z.loops != backward.loops and within(backward, z) and z.loops]
    if steps and all(_rare(s, backward) for s in steps):
        for update in updates:
            if not _rare(update, backward):
                yield update.node, EVERY.format("update()", "step()")
        for zero in zeros:
            if not _rare(zero, backward) and not _conditional(zero, backward):
                yield zero.node, EVERY.format("zero_grad()", "step()")
    often = [s for s in steps if not _rare(s, backward) and not _conditional(s, backward)]
    if often and updates and all(_rare(u, backward) for u in updates):
        yield often[0].node, EVERY.format("step()", "update()")
    elif (often and zeros and all(_rare(z, backward) for z in zeros)) or (
        often and not zeros and outer_zeros and backward.tensor is not None and backward.tensor.divided
    ):
        yield often[0].node, EVERY.format("step()", "zero_grad()")


def _ours(trace: Trace, backward: Event, kind: str) -> list[Event]:
    scaler = (
        backward.tensor.scaled.scaler if backward.tensor is not None and backward.tensor.scaled is not None else None
    )
    return [e for e in trace.of(kind) if e.scaler is scaler and e.loops == backward.loops and together(e, backward)]


def _rare(event: Event, backward: Event) -> bool:
    return any(c.kind == "periodic" for c in extra_conditions(event, backward))


def _conditional(event: Event, backward: Event) -> bool:
    return bool(extra_conditions(event, backward))
