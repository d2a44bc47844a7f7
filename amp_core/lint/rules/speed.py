"""What costs speed or soon stops working; none of it makes a result wrong."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_core.lint.finding import Severity
from amp_core.lint.interpreter.imports import DEPRECATED
from amp_core.lint.program import Program
from amp_core.lint.rule import rule

LARGE = 1024


@rule(
    "AMP511",
    "deprecated-amp-api",
    Severity.INFO,
    what="torch.cuda.amp or torch.cpu.amp is used.",
    why="Both are deprecated and warn; torch.amp does the same for every device.",
    before="""
from torch.cuda.amp import GradScaler
""",
    after="""
from torch.amp import GradScaler
""",
    fix='import from torch.amp, and name the device: autocast("cuda"), GradScaler("cuda")',
)
def deprecated(program: Program) -> Iterator[tuple[ast.AST, str]]:
    for node, name in program.deprecated:
        yield node, f'{name} is deprecated: use {DEPRECATED[name]} with "{name.split(".")[1]}" as the device'


@rule(
    "AMP512",
    "loss-scale-read-every-step",
    Severity.INFO,
    what="get_scale() is called in every iteration only to log it.",
    why="It waits for the device, and so does the next step: the queue of kernels runs empty.",
    before="""
for x, y in loader:
    with autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    scales.append(scaler.get_scale())
""",
    after="""
for step, (x, y) in enumerate(loader):
    with autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if step % 100 == 0:
        scales.append(scaler.get_scale())
""",
    fix="log the scale every n-th step",
)
def scale_every_step(program: Program) -> Iterator[tuple[ast.AST, str]]:
    for trace in program.traces:
        steps = trace.of("step")
        for event in trace.of("scale_logged"):
            unguarded = not any(c.kind for c in event.context.conditions)
            if event.loops and unguarded and any(s.loops == event.loops for s in steps):
                yield event.node, "get_scale() waits for the device in every iteration: log it every n-th step"


@rule(
    "AMP513",
    "gradient-item-per-parameter",
    Severity.INFO,
    what=".item() is called on the gradient of every parameter.",
    why="Each call waits for the device: hundreds of synchronisations per step instead of one.",
    before="""
loss.backward()
for p in model.parameters():
    total += p.grad.norm().item() ** 2
""",
    after="""
loss.backward()
total = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()]).item()
""",
    fix="combine on the device, and read one number: torch.nn.utils.get_total_norm",
)
def item_per_parameter(program: Program) -> Iterator[tuple[ast.AST, str]]:
    for event in program.of("grad_item"):
        if event.loops:
            yield event.node, ".item() waits for the device once per parameter: combine first, then read one number"


@rule(
    "AMP514",
    "dimension-not-multiple-of-8",
    Severity.INFO,
    what="A large layer has a dimension that is not a multiple of 8.",
    why="Tensor cores work on tiles of 8 in 16 bits; a vocabulary of 50257 instead of 50304 can halve the speed "
    "of its product.",
    before="""
head = nn.Linear(768, 50257)
with autocast("cuda", dtype=torch.float16):
    out = head(x)
""",
    after="""
head = nn.Linear(768, 50304)
with autocast("cuda", dtype=torch.float16):
    out = head(x)
""",
    fix="pad the dimension to the next multiple of 8, better 64",
)
def odd_dimension(program: Program) -> Iterator[tuple[ast.AST, str]]:
    if not any(region.dtype in {"float16", "bfloat16"} and region.enabled is not False for region in program.regions):
        return
    for event in program.of("module"):
        model, sizes = event.model, event.detail
        if model is None or not model.kind.endswith(".Linear") or len(sizes) < 2:
            continue
        for size in sizes[:2]:
            is_power_and_one = size > 2 and (size - 1) & (size - 2) == 0
            if size >= LARGE and size % 8 and not is_power_and_one and min(sizes[:2]) >= 64:
                yield event.node, f"{size} is not a multiple of 8: tensor cores work on tiles of 8"
