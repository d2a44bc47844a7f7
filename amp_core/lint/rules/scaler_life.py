"""The scaler's life: recreated, with closures, beside schedules and anomaly mode."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_core.lint.events import Event
from amp_core.lint.finding import Severity
from amp_core.lint.program import Program
from amp_core.lint.relations import before
from amp_core.lint.rule import rule
from amp_core.lint.values import Unknown


@rule(
    "AMP141",
    "closure-with-gradscaler",
    Severity.ERROR,
    what="A scaler steps LBFGS, or an optimizer with a closure.",
    why="GradScaler refuses closures: the optimizer would evaluate the loss several times between unscaling and "
    "the step. A closure that scales its loss, handed to optimizer.step(), is never unscaled.",
    before="""
optimizer = torch.optim.LBFGS(model.parameters())
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
""",
    after="""
optimizer = torch.optim.AdamW(model.parameters())
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
""",
    fix="run LBFGS in float32 or bfloat16 without a scaler, or use an optimizer that needs no closure",
)
def closure_with_scaler(program: Program) -> Iterator[tuple[ast.AST, str]]:
    for event in program.of("step"):
        closure = event.detail is not None and not isinstance(event.detail, Unknown)
        if closure or (event.optimizer is not None and event.optimizer.kind == "LBFGS"):
            yield event.node, "GradScaler does not support closures, so neither LBFGS nor step(optimizer, closure)"
    for event in program.of("opt_step"):
        if isinstance(event.detail, list) and event.detail:
            yield event.node, "the closure scales its loss, but optimizer.step(closure) never unscales the gradients"


@rule(
    "AMP142",
    "scheduler-after-skipped-step",
    Severity.INFO,
    what="The learning-rate schedule advances every iteration, also when the scaler skipped the optimizer's step.",
    why="After an overflow nothing was trained, but warm-up and decay move on; the first iterations of fp16 "
    "training usually skip a few steps.",
    before="""
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=1000)
for x, y in loader:
    with autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    scheduler.step()
""",
    after="""
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=1000)
for x, y in loader:
    with autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    old_scale = scaler.get_scale()
    scaler.update()
    if scaler.get_scale() >= old_scale:
        scheduler.step()
""",
    fix="step the schedule only if scaler.get_scale() did not fall in update()",
)
def scheduler_after_skip(program: Program) -> Iterator[tuple[ast.AST, str]]:
    for trace in program.traces:
        for event in trace.of("sched_step"):
            steps = [s for s in trace.of("step") if s.loops == event.loops and s.loops]
            near = [s for s in steps if s in before(steps, event)]
            guarded = any(c.kind in {"scale", "finite"} for c in event.context.conditions)
            if near and not guarded and not event.detail and any(_per_iteration(s) for s in near):
                yield (
                    event.node,
                    "the schedule also advances when the scaler skipped the step: guard it by the loss scale",
                )


def _per_iteration(step: Event) -> bool:
    return step.scaler is not None and step.scaler.kind == "GradScaler"


@rule(
    "AMP143",
    "gradscaler-recreated",
    Severity.WARNING,
    what="A GradScaler is made anew in a loop, while model and optimizer live on.",
    why="Each new scaler starts at 65536 again: the first steps overflow and are skipped, every epoch, and the "
    "scale that was found is lost.",
    before="""
for epoch in range(10):
    scaler = GradScaler("cuda")
    for x, y in loader:
        with autocast("cuda", dtype=torch.float16):
            loss = loss_fn(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
""",
    after="""
scaler = GradScaler("cuda")
for epoch in range(10):
    for x, y in loader:
        with autocast("cuda", dtype=torch.float16):
            loss = loss_fn(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
""",
    fix="make the scaler once, next to the optimizer",
)
def scaler_recreated(program: Program) -> Iterator[tuple[ast.AST, str]]:
    for event in program.of("step"):
        scaler, optimizer = event.scaler, event.optimizer
        if scaler is None or optimizer is None or scaler.node is None or not scaler.loops or scaler.enabled is False:
            continue
        outlives = len(optimizer.loops) < len(scaler.loops) and scaler.loops[: len(optimizer.loops)] == optimizer.loops
        if outlives and event.loops[: len(scaler.loops)] == scaler.loops and scaler.kind == "GradScaler":
            yield (
                scaler.node,
                "the scaler is made anew in this loop, while its optimizer lives on: the scale starts over each time",
            )


@rule(
    "AMP144",
    "anomaly-mode-with-gradscaler",
    Severity.WARNING,
    what="Anomaly detection is on while a GradScaler is in use.",
    why="Overflows are part of dynamic loss scaling, and the scaler handles them by skipping. Anomaly mode raises"
    " at the first NaN in backward instead, and slows every step down.",
    before="""
torch.autograd.set_detect_anomaly(True)
scaler = GradScaler("cuda")
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
""",
    after="""
scaler = GradScaler("cuda")
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
""",
    fix="switch anomaly mode on only while debugging, with a small fixed scale",
)
def anomaly_mode(program: Program) -> Iterator[tuple[ast.AST, str]]:
    if not any(s.enabled is not False for s in program.scalers) and not any(True for _ in program.of("scale")):
        return
    for event in program.of("anomaly"):
        yield event.node, "anomaly mode raises at overflows that the GradScaler would handle by skipping the step"


@rule(
    "AMP145",
    "skip-without-update",
    Severity.ERROR,
    what="After unscale_() a batch with infinite gradients is skipped by hand, without scaler.update().",
    why="update() is what lowers the scale after an overflow and ends the iteration for the scaler. Without it the "
    "next unscale_() raises, or the same overflow comes back every iteration.",
    before="""
for x, y in loader:
    optimizer.zero_grad()
    with autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if not torch.isfinite(norm):
        continue
    scaler.step(optimizer)
    scaler.update()
""",
    after="""
for x, y in loader:
    optimizer.zero_grad()
    with autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
""",
    fix="leave skipping to scaler.step(), or call scaler.update() before continue",
)
def skip_without_update(program: Program) -> Iterator[tuple[ast.AST, str]]:
    for trace in program.traces:
        unscales = [e for e in trace.of("unscale") if e.scaler is not None and e.scaler.kind == "GradScaler"]
        for leave in trace.of("continue"):
            checked = [c for c in leave.context.conditions if c.kind == "finite"]
            earlier = [u for u in before(unscales, leave) if u.loops == leave.loops]
            updates = [u for u in before(trace.of("update"), leave) if earlier and u.index > earlier[-1].index]
            if checked and earlier and not updates and checked[-1] not in earlier[-1].context.conditions:
                yield (
                    leave.node,
                    "this skips update() after unscale_(): the scale never falls, and the next unscale_() raises",
                )
