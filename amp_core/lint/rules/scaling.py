"""Scaled losses and who steps: optimizers beside the scaler, backward without scale, fp16 without a scaler."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_core.lint.events import Event, Trace, exclusive
from amp_core.lint.finding import Severity
from amp_core.lint.program import Program
from amp_core.lint.relations import before, optimized, overlap, plain_backwards, scaled_backwards
from amp_core.lint.rule import rule


@rule(
    "AMP111",
    "optimizer-step-bypasses-scaler",
    Severity.ERROR,
    what="optimizer.step() is called directly on gradients of a scaled loss.",
    why="Only scaler.step() divides the gradients by the scale and skips a step whose gradients are infinite. "
    "Called directly, the optimizer takes gradients up to 65536 times too large, and infinities go into the "
    "weights.",
    before="""
scaler.scale(loss).backward()
optimizer.step()
""",
    after="""
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
""",
    fix="replace optimizer.step() by scaler.step(optimizer) and scaler.update()",
)
def step_bypasses_scaler(program: Program) -> Iterator[tuple[ast.AST, str]]:
    for trace in program.traces:
        for step in trace.of("opt_step"):
            if step.detail is not None or not _last_is_scaled(trace, step):
                continue
            alternatives = [s for s in trace.of("step") if s.optimizer is step.optimizer and exclusive(s, step)]
            if alternatives or any(c.kind == "finite" for c in step.context.conditions):
                continue
            yield step.node, "the gradients carry a loss scale, but optimizer.step() neither unscales nor checks them"


def _last_is_scaled(trace: Trace, step: Event) -> bool:
    backwards = before(trace.of("backward"), step)
    if not backwards:
        return False
    scaled = [b for b in backwards if b.tensor is not None and b.tensor.scaled is not None]
    if any(b.index > scaled[-1].index for b in backwards) if scaled else True:
        return False
    unscaled_by_hand = [m for m in before(trace.of("manual_unscale"), step) if m.index > scaled[-1].index]
    mine = [b for b in scaled if b.tensor is not None and overlap(b.tensor.models, optimized(step)) is not False]
    return bool(mine) and not unscaled_by_hand


@rule(
    "AMP112",
    "backward-without-scale",
    Severity.ERROR,
    what="scaler.step() follows backward() of a loss that was not scaled.",
    why="scaler.step() divides the gradients by the scale. If nothing multiplied them before, the update is 65536"
    " times too small; if one of several losses was scaled and another not, they are mixed in the wrong "
    "proportion.",
    before="""
loss.backward()
scaler.step(optimizer)
scaler.update()
""",
    after="""
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
""",
    fix="call scaler.scale(loss).backward()",
)
def backward_without_scale(program: Program) -> Iterator[tuple[ast.AST, str]]:
    for trace in program.traces:
        steps = [s for s in trace.of("step") if s.scaler is not None]
        scaled = scaled_backwards(trace)
        for step in steps:
            plain = [b for b in before(plain_backwards(trace), step) if not _made_outside(b)]
            own = [b for b in plain if b.tensor is None or overlap(b.tensor.models, optimized(step)) is not False]
            has_scaled = before(scaled, step)
            for backward in own:
                certain = backward.tensor is not None and overlap(backward.tensor.models, optimized(step)) is True
                if not has_scaled and backward is own[-1]:
                    yield (
                        backward.node,
                        "scaler.step() divides by the loss scale, but this loss was never multiplied by it",
                    )
                elif has_scaled and certain and _steps_alone(trace, backward, step):
                    yield (
                        backward.node,
                        "this loss is not scaled, while others of the same optimizer are: gradients are mixed",
                    )


def _made_outside(backward: Event) -> bool:
    """A loss scaled by hand, or one whose making is not in this file."""
    return backward.tensor is not None and backward.tensor.multiplied


def _steps_alone(trace: Trace, backward: Event, step: Event) -> bool:
    """Whether no plain optimizer.step() consumes the gradients of `backward` before `step`."""
    plain_steps = [s for s in trace.of("opt_step") if backward.index < s.index < step.index]
    zeroed = [z for z in trace.of("zero_grad") if backward.index < z.index < step.index and z.loops == backward.loops]
    return not plain_steps and not zeroed and backward.loops == step.loops


@rule(
    "AMP113",
    "fp16-without-gradscaler",
    Severity.WARNING,
    what="A loss computed under float16 autocast is differentiated without a loss scale.",
    why="float16 gradients below 6e-8 become zero. The loss is finite and no warning appears, but layers with "
    "small gradients stop learning.",
    before="""
with autocast("cuda", dtype=torch.float16):
    loss = loss_fn(model(x), y)
loss.backward()
optimizer.step()
""",
    after="""
scaler = GradScaler("cuda")
with autocast("cuda", dtype=torch.float16):
    loss = loss_fn(model(x), y)
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
""",
    fix="use torch.amp.GradScaler, or dtype=torch.bfloat16, which has float32's range",
)
def fp16_without_scaler(program: Program) -> Iterator[tuple[ast.AST, str]]:
    if program.scales or any(True for _ in program.of("scale", "step", "unscale")):
        return
    for trace in program.traces:
        steps = trace.of("opt_step")
        for backward in trace.of("backward"):
            tensor = backward.tensor
            if tensor is None or tensor.multiplied or not tensor.regions:
                continue
            halves = {region.dtype for region in tensor.regions if region.enabled is not False and not region.assumed}
            if halves == {"float16"} and steps:
                yield backward.node, "float16 autocast without a GradScaler: small gradients become zero unnoticed"


@rule(
    "AMP114",
    "gradscaler-not-needed-for-bf16",
    Severity.INFO,
    what="A GradScaler is active although autocast uses bfloat16.",
    why="bfloat16 has float32's exponent range, so there is nothing to rescue; the scaler costs a pass over the "
    "gradients and a synchronisation per step.",
    before="""
scaler = GradScaler("cuda")
with autocast("cuda", dtype=torch.bfloat16):
    loss = loss_fn(model(x), y)
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
""",
    after="""
with autocast("cuda", dtype=torch.bfloat16):
    loss = loss_fn(model(x), y)
loss.backward()
optimizer.step()
""",
    fix="drop the scaler, or pass enabled=(dtype == torch.float16)",
)
def scaler_with_bf16(program: Program) -> Iterator[tuple[ast.AST, str]]:
    dtypes: dict[int, set[str | None]] = {}
    for event in program.of("scale"):
        tensor, scaler = event.tensor, event.scaler
        if tensor is None or scaler is None:
            continue
        found = {r.dtype for r in tensor.regions if r.enabled is not False and not r.assumed}
        weights = {m.weights for m in tensor.models if m.weights in {"bfloat16", "float16"}}
        dtypes.setdefault(id(scaler), set()).update(found or weights or {None})
    for scaler in program.scalers:
        if scaler.enabled is True and scaler.node is not None and dtypes.get(id(scaler)) == {"bfloat16"}:
            yield scaler.node, "a GradScaler has nothing to do for bfloat16, which has float32's exponent range"
