"""Order of unscale_, clipping, step and update."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise

from amp_core.lint.events import Event, Trace, extra_conditions, together, within
from amp_core.lint.finding import Severity
from amp_core.lint.program import Program
from amp_core.lint.relations import after, before, optimized, overlap, same_optimizer, scaled_backwards
from amp_core.lint.rule import rule


@rule(
    "AMP101",
    "clip-before-unscale",
    Severity.ERROR,
    what="Gradients are clipped while they still carry the loss scale.",
    why="After scaler.scale(loss).backward() every gradient is multiplied by the loss scale, 65536 at first. A "
    "threshold meant for true gradients then cuts all of them to almost nothing, and training looks slow "
    "instead of broken.",
    before="""
scaler.scale(loss).backward()
nn.utils.clip_grad_norm_(model.parameters(), 1.0)
scaler.step(optimizer)
scaler.update()
""",
    after="""
scaler.scale(loss).backward()
scaler.unscale_(optimizer)
nn.utils.clip_grad_norm_(model.parameters(), 1.0)
scaler.step(optimizer)
scaler.update()
""",
    fix="call scaler.unscale_(optimizer) once, right before clipping",
)
def clip_before_unscale(program: Program) -> Iterator[tuple[ast.AST, str]]:
    for trace in program.traces:
        backwards = scaled_backwards(trace)
        for clip in trace.of("clip"):
            if clip.detail == "scaled" or not before(backwards, clip):
                continue
            steps = [s for s in after(trace.of("step"), clip) if overlap(optimized(s), clip.models) is not False]
            if steps and not _unscaled(trace, clip):
                yield (
                    clip.node,
                    "gradients are clipped while they are multiplied by the loss scale: unscale_() must come first",
                )


def _unscaled(trace: Trace, clip: Event) -> bool:
    for unscale in before(trace.of("unscale", "manual_unscale"), clip):
        if overlap(optimized(unscale), clip.models) is False:
            continue
        used_up = [s for s in before(trace.of("step"), clip) if s.index > unscale.index and same_optimizer(s, unscale)]
        if not used_up:
            return True
    return False


@rule(
    "AMP102",
    "unscale-more-than-once",
    Severity.ERROR,
    what="unscale_() runs more than once for one optimizer between two updates.",
    why="The second call raises a RuntimeError. With gradient accumulation, later micro-batches would also add "
    "scaled gradients to unscaled ones.",
    before="""
for i, (x, y) in enumerate(loader):
    with autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y) / 4
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    if (i + 1) % 4 == 0:
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
""",
    after="""
for i, (x, y) in enumerate(loader):
    with autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y) / 4
    scaler.scale(loss).backward()
    if (i + 1) % 4 == 0:
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
""",
    fix="unscale once per optimizer step, after the last micro-batch",
)
def unscale_more_than_once(program: Program) -> Iterator[tuple[ast.AST, str]]:
    for trace in program.traces:
        unscales = [e for e in trace.of("unscale") if e.scaler is not None and e.scaler.kind == "GradScaler"]
        updates = trace.of("update")
        for unscale in unscales:
            if _before_accumulation_ends(trace, unscale):
                yield (
                    unscale.node,
                    "unscale_() runs for every micro-batch, update() only after several: the next call raises",
                )
            for earlier in before(unscales, unscale):
                between = [u for u in updates if earlier.index < u.index < unscale.index and u.scaler is unscale.scaler]
                same = earlier.scaler is unscale.scaler and earlier.optimizer is unscale.optimizer is not None
                if same and not between and not _repeats_apart(earlier, unscale):
                    yield (
                        unscale.node,
                        "unscale_() was already called for this optimizer since the last update(): it raises",
                    )


def _before_accumulation_ends(trace: Trace, unscale: Event) -> bool:
    """Whether the update that ends an unscale is rarer than it: under a periodic condition, or after its loop."""
    updates = [u for u in trace.of("update") if u.scaler is unscale.scaler]
    if not updates or not unscale.loops:
        return False
    inside = [u for u in updates if within(u, unscale) and together(u, unscale)]
    if inside:
        rare = [u for u in inside if any(c.kind == "periodic" for c in extra_conditions(u, unscale))]
        return len(rare) == len(inside)
    made_in_loop = unscale.optimizer is None or unscale.optimizer.loops[: len(unscale.loops)] == unscale.loops
    backwards = [b for b in scaled_backwards(trace) if b.loops == unscale.loops]
    later = [u for u in updates if within(unscale, u) and u.index > unscale.index]
    return bool(later) and not made_in_loop and bool(backwards)


def _repeats_apart(first: Event, second: Event) -> bool:
    return first.loops != second.loops


@rule(
    "AMP103",
    "unscale-after-step",
    Severity.ERROR,
    what="unscale_() is called after step() of the same optimizer, before update().",
    why="step() unscales by itself and then forbids unscale_() until update(): a RuntimeError.",
    before="""
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.unscale_(optimizer)
scaler.update()
""",
    after="""
scaler.scale(loss).backward()
scaler.unscale_(optimizer)
scaler.step(optimizer)
scaler.update()
""",
    fix="call unscale_() between backward() and step()",
)
def unscale_after_step(program: Program) -> Iterator[tuple[ast.AST, str]]:
    for trace in program.traces:
        for unscale in trace.of("unscale"):
            for step in before(trace.of("step"), unscale):
                known = step.optimizer is not None and step.optimizer is unscale.optimizer
                updated = [u for u in trace.of("update") if step.index < u.index < unscale.index]
                if known and step.scaler is unscale.scaler and not updated and step.loops == unscale.loops:
                    yield (
                        unscale.node,
                        "unscale_() after step() of the same optimizer raises: call it between backward() and step()",
                    )


@rule(
    "AMP104",
    "missing-scaler-update",
    Severity.ERROR,
    what="scaler.step() without scaler.update() in the same pass.",
    why="Without update() the scale never reacts to an overflow and never grows, and the next step() raises a "
    "RuntimeError.",
    before="""
for x, y in loader:
    with autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
""",
    after="""
for x, y in loader:
    with autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""",
    fix="call scaler.update() once per iteration, after the last scaler.step()",
)
def missing_update(program: Program) -> Iterator[tuple[ast.AST, str]]:
    updated = {e.scaler for e in program.of("update")}
    for trace in program.traces:
        for step in trace.of("step"):
            scaler = step.scaler
            if scaler is None or scaler in program.escaped or scaler.kind != "GradScaler":
                continue
            if scaler not in updated:
                if scaler.node is not None or _is_last_of_many(trace, step):
                    yield (
                        step.node,
                        "step() is never followed by update(): the loss scale cannot adapt, and the next step() raises",
                    )
                continue
            updates = [u for u in trace.of("update") if u.scaler is scaler]
            if updates and all(_after_loop(step, u) for u in updates) and _optimizer_outlives(step):
                yield (
                    step.node,
                    "step() runs in a loop that update() is outside of: the second step() of the loop raises",
                )


def _is_last_of_many(trace: Trace, step: Event) -> bool:
    """A scaler given as an argument: judge only a whole training loop."""
    return bool(step.loops) and bool(before(scaled_backwards(trace), step))


def _after_loop(step: Event, update: Event) -> bool:
    return len(update.loops) < len(step.loops) and within(step, update)


def _optimizer_outlives(step: Event) -> bool:
    optimizer = step.optimizer
    return optimizer is not None and len(optimizer.loops) < len(step.loops)


@rule(
    "AMP105",
    "scaler-update-twice-per-iteration",
    Severity.WARNING,
    what="One scaler is updated after each of several optimizers.",
    why="update() moves the scale for the whole iteration. Called between two optimizers it changes the scale "
    "under gradients that are still scaled by the old one, and the growth interval counts every iteration "
    "twice.",
    before="""
scaler.scale(loss_d).backward()
scaler.step(optimizer_d)
scaler.update()
scaler.scale(loss_g).backward()
scaler.step(optimizer_g)
scaler.update()
""",
    after="""
scaler.scale(loss_d).backward()
scaler.step(optimizer_d)
scaler.scale(loss_g).backward()
scaler.step(optimizer_g)
scaler.update()
""",
    fix="call update() once, after the steps of all optimizers; or use one scaler per optimizer",
)
def update_per_optimizer(program: Program) -> Iterator[tuple[ast.AST, str]]:
    for trace in program.traces:
        updates = trace.of("update")
        for first, second in pairwise(updates):
            if first.scaler is None or first.scaler.kind != "GradScaler" or first.scaler is not second.scaler:
                continue
            if first.loops != second.loops or not together(first, second):
                continue
            steps = [s for s in trace.of("step") if s.scaler is first.scaler and s.loops == first.loops]
            stepped = {s.optimizer for s in steps if s.index < first.index and together(s, first)}
            then = {s.optimizer for s in steps if first.index < s.index < second.index}
            if stepped and then and not (stepped & then) and None not in stepped | then:
                yield (
                    first.node,
                    "update() is called after each of several optimizers: once per iteration, after all steps",
                )
