"""Evaluation and baselines in another precision than they are compared with."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_core.lint.events import Event, Trace
from amp_core.lint.finding import Severity
from amp_core.lint.program import Program
from amp_core.lint.relations import contained
from amp_core.lint.rule import rule
from amp_core.lint.values import Object


@rule(
    "AMP501",
    "evaluation-in-another-precision",
    Severity.INFO,
    what="A model trained under autocast is validated during training in another precision.",
    why="Validation then says nothing of the numbers that training sees and deployment will use: overflow in 16 "
    "bits stays hidden, or a model trained in bfloat16 overflows in float16.",
    before="""
for epoch in range(3):
    model.train()
    for x, y in loader:
        with autocast("cuda", dtype=torch.bfloat16):
            loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        for x, y in loader:
            total += loss_fn(model(x), y).item()
""",
    after="""
for epoch in range(3):
    model.train()
    for x, y in loader:
        with autocast("cuda", dtype=torch.bfloat16):
            loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad(), autocast("cuda", dtype=torch.bfloat16):
        for x, y in loader:
            total += loss_fn(model(x), y).item()
""",
    fix="validate under the autocast that training uses",
)
def evaluation(program: Program) -> Iterator[tuple[ast.AST, str]]:
    for trace in program.traces:
        converted = {e.model for e in trace.of("convert")}
        forwards = [e for e in trace.of("forward") if e.model not in converted and e.detail is None]
        for event in forwards:
            if event.context.no_grad and event.loops and event.model is not None and _mode(trace, event) == "eval":
                yield from _judge(event, [f for f in forwards if f.model is event.model and not f.context.no_grad])


def _judge(event: Event, training: list[Event]) -> Iterator[tuple[ast.AST, str]]:
    trained = [f for f in training if f.context.autocast is not None and f.context.autocast.enabled]
    if not trained or len(trained) < len(training) or any(len(c) for c in [event.context.conditions]):
        return
    shared = [f for f in trained if set(f.loops) & set(event.loops)]
    dtypes = {f.context.autocast.dtype for f in trained if f.context.autocast is not None}
    here = event.context.regions[-1] if event.context.regions else None
    if not shared or len(dtypes) != 1 or None in dtypes:
        return
    there = dtypes.pop()
    if here is None and _outermost(event):
        yield event.node, f"training runs under {there} autocast, this evaluation in float32: use the same autocast"
    elif here is not None and here.enabled and here.dtype not in {None, there}:
        yield event.node, f"training runs under {there} autocast, this evaluation under {here.dtype}"


def _outermost(event: Event) -> bool:
    """A model called by the script, not a part of one called by its forward."""
    return "forward" not in event.context.functions


def _mode(trace: Trace, event: Event) -> str:
    """eval or train, whichever was called last on the model."""
    mode = "train"
    for change in trace.of("mode"):
        if change.index < event.index and change.model is not None and _about(change.model, event.model):
            mode = change.detail
    return mode


def _about(changed: Object, model: Object | None) -> bool:
    return model is not None and model in contained(changed)


@rule(
    "AMP502",
    "tf32-in-fp32-baseline",
    Severity.INFO,
    what="TF32 is switched on in a script that compares autocast with a float32 run of its own.",
    why="The float32 side then multiplies with 10-bit mantissas: the baseline is neither as exact nor as slow as "
    "float32, and the comparison says less than it seems to.",
    before="""
torch.backends.cuda.matmul.allow_tf32 = True
for use_amp in (False, True):
    with autocast("cuda", dtype=torch.bfloat16, enabled=use_amp):
        loss = loss_fn(model(x), y)
""",
    after="""
torch.backends.cuda.matmul.allow_tf32 = False
for use_amp in (False, True):
    with autocast("cuda", dtype=torch.bfloat16, enabled=use_amp):
        loss = loss_fn(model(x), y)
""",
    fix='set allow_tf32 = False and set_float32_matmul_precision("highest") for the baseline',
)
def tf32_baseline(program: Program) -> Iterator[tuple[ast.AST, str]]:
    flags = list(program.of("tf32"))
    if not flags or not _compares(program):
        return
    for event in flags:
        if not event.context.conditions:
            yield event.node, "TF32 is on for the float32 side of the comparison, too: switch it off for the baseline"


def _compares(program: Program) -> bool:
    """Whether one autocast is entered both on and off by literals here, or a float32 arm is named as baseline."""
    answers: dict[int, set[bool]] = {}
    for region in program.regions:
        node = region.context.node
        if region.enabled is not None:
            answers.setdefault(id(node), set()).add(region.enabled)
    if any(len(found) == 2 for found in answers.values()):
        return True
    names = {n.name.lower() for n in ast.walk(program.tree) if isinstance(n, ast.FunctionDef)}
    has_baseline = any("baseline" in n or "fp32" in n or "float32" in n for n in names)
    return has_baseline and any(r.enabled is not False for r in program.regions)
