"""Where autocast begins and ends."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_core.lint.events import Event, Region, Trace
from amp_core.lint.finding import Severity
from amp_core.lint.program import Program
from amp_core.lint.rule import rule


@rule(
    "AMP201",
    "backward-inside-autocast",
    Severity.WARNING,
    what="backward() is called inside an autocast block.",
    why="Backward operations run in the types that autocast chose for the forward pass. Inside the block custom "
    "backward code is cast a second time, and the block usually goes on to cover more than it should.",
    before="""
with autocast("cuda", dtype=torch.float16):
    loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
""",
    after="""
with autocast("cuda", dtype=torch.float16):
    loss = loss_fn(model(x), y)
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
""",
    fix="end the autocast block after the loss",
)
def backward_inside(program: Program) -> Iterator[tuple[ast.AST, str]]:
    for trace in program.traces:
        spanning = {region for region, _ in _spans(trace)}
        for event in trace.of("backward"):
            region = _real(event)
            if region is not None and region not in spanning:
                yield (
                    event.node,
                    "backward() runs inside the autocast block: leave the block after the loss is computed",
                )


def _real(event: Event) -> Region | None:
    region = event.context.autocast
    return None if region is None or region.assumed else region


@rule(
    "AMP202",
    "autocast-spans-optimizer-step",
    Severity.ERROR,
    what="One autocast block covers an optimizer step and later forward passes.",
    why="Autocast keeps the 16-bit copies of the weights until the outermost block ends. Forward passes after a "
    "step in the same block use the copies from before it: the model trains on stale weights and does not "
    "move.",
    before="""
with autocast("cuda", dtype=torch.bfloat16):
    for x, y in loader:
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
""",
    after="""
for x, y in loader:
    with autocast("cuda", dtype=torch.bfloat16):
        loss = loss_fn(model(x), y)
    loss.backward()
    optimizer.step()
""",
    fix="enter autocast anew for each forward pass, inside the loop",
)
def spans_step(program: Program) -> Iterator[tuple[ast.AST, str]]:
    for trace in program.traces:
        for region, _ in _spans(trace):
            yield (
                region.node,
                "the block covers optimizer steps and later forward passes, which use weights cached before the step",
            )


def _spans(trace: Trace) -> list[tuple[Region, Event]]:
    found: list[tuple[Region, Event]] = []
    passes = trace.of("forward", "backward")
    for step in trace.of("opt_step", "step"):
        outer = next((r for r in step.context.regions if r.enabled is not False and not r.assumed), None)
        if outer is None or not outer.context.cached or outer in {region for region, _ in found}:
            continue
        loops_inside = len(step.loops) > outer.depth
        later = [f for f in passes if f.index > step.index and outer in f.context.regions and f.kind == "forward"]
        inside = [f for f in passes if outer in f.context.regions]
        if (loops_inside and inside) or later:
            found.append((outer, step))
    return found


@rule(
    "AMP203",
    "autocast-disabled-without-upcast",
    Severity.ERROR,
    what="Inside autocast(enabled=False), a tensor that autocast made 16-bit is used without .float().",
    why="Switching autocast off does not convert what comes in. A float16 tensor then meets float32 weights (a "
    "dtype error), or is computed in the very precision that the region was meant to avoid.",
    before="""
with autocast("cuda", dtype=torch.float16):
    hidden = model(x)
    with autocast("cuda", enabled=False):
        out = torch.softmax(hidden, -1)
""",
    after="""
with autocast("cuda", dtype=torch.float16):
    hidden = model(x)
    with autocast("cuda", enabled=False):
        out = torch.softmax(hidden.float(), -1)
""",
    fix="cast inputs with .float() at the start of the region",
)
def disabled_without_upcast(program: Program) -> Iterator[tuple[ast.AST, str]]:
    for event in program.of("half_in_disabled"):
        dtype = event.tensor.dtype if event.tensor is not None else "16-bit"
        yield event.node, f"autocast is off here, but the input is still {dtype} from outside: cast it with .float()"


@rule(
    "AMP204",
    "binary-cross-entropy-under-autocast",
    Severity.ERROR,
    what="binary_cross_entropy or BCELoss runs inside autocast.",
    why="CUDA autocast refuses it with a RuntimeError, because its backward overflows in float16; the CPU "
    "computes it in float32 without a word, so a test on a CPU passes.",
    before="""
criterion = nn.BCELoss()
with autocast("cuda", dtype=torch.float16):
    loss = criterion(torch.sigmoid(model(x)), y)
""",
    after="""
criterion = nn.BCEWithLogitsLoss()
with autocast("cuda", dtype=torch.float16):
    loss = criterion(model(x), y)
""",
    fix="drop the sigmoid and use BCEWithLogitsLoss, or compute the loss in a region with enabled=False on "
    ".float() inputs",
)
def bce(program: Program) -> Iterator[tuple[ast.AST, str]]:
    for event in program.of("bce"):
        region = event.context.autocast
        if region is not None and region.context.devices != frozenset({"cpu"}):
            yield (
                event.node,
                "binary_cross_entropy is refused under CUDA autocast: use binary_cross_entropy_with_logits",
            )
