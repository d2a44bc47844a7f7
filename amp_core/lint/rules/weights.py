"""Weights in half precision: training them, averaging in them, passing through them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_core.lint.events import Event, Trace, extra_conditions
from amp_core.lint.finding import Severity
from amp_core.lint.interpreter.tensors import HALF_LOST
from amp_core.lint.program import Program
from amp_core.lint.relations import contained, optimized
from amp_core.lint.rule import rule
from amp_core.lint.values import HALVES, Object


def _trained(trace: Trace, model: Object, *kinds: str) -> list[Event]:
    """Steps of optimizers that hold the parameters of `model`."""
    return [s for s in trace.of(*kinds) if any(model in contained(m) for m in optimized(s))]


def _conversions(trace: Trace, *dtypes: str) -> list[Event]:
    return [e for e in trace.of("convert") if e.detail in dtypes and e.model is not None]


def _back(trace: Trace, event: Event) -> list[Event]:
    """Later conversions of the same model back to float32."""
    return [e for e in _conversions(trace, "float32") if e.model is event.model and e.index > event.index]


def _surely_both(event: Event, step: Event) -> bool:
    """Whether a switchable scaler and a conversion that only some flag makes are on at once is not known."""
    return step.scaler is None or step.scaler.enabled is True or not extra_conditions(event, step)


def _before_training(event: Event, steps: list[Event]) -> bool:
    """Whether the model is stepped after the conversion: later, or again in a loop around both."""
    return any(s.index > event.index or set(s.loops) & set(event.loops) for s in steps)


@rule(
    "AMP301",
    "half-weights-with-gradscaler",
    Severity.ERROR,
    what="A model converted to float16 is trained with a GradScaler.",
    why='Its gradients are float16, and unscale_() refuses them: "Attempting to unscale FP16 gradients". A fused '
    "optimizer does not even say so, and rounds every update to float16.",
    before="""
model = model.half()
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
""",
    after="""
model = model.float()
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
""",
    fix="keep float32 weights, and let autocast cast them",
)
def half_with_scaler(program: Program) -> Iterator[tuple[ast.AST, str]]:
    for trace in program.traces:
        for event in _conversions(trace, "float16"):
            assert event.model is not None
            steps = [s for s in _trained(trace, event.model, "step", "unscale") if _surely_both(event, s)]
            if steps and not _back(trace, event) and _before_training(event, steps):
                yield (
                    event.node,
                    "the weights become float16, and GradScaler refuses to unscale float16 gradients",
                )
    for trace in program.traces:
        trained = {event.model for event in trace.of("trainer")}
        for event in (e for e in _conversions(trace, "float16") if e.model in trained):
            yield (
                event.node,
                "the model was loaded in float16, but fp16=True needs float32 weights: load it without torch_dtype",
            )


@rule(
    "AMP302",
    "adam-eps-on-half-params",
    Severity.ERROR,
    what="Adam or a relative steps float16 weights with an eps that float16 cannot hold.",
    why="1e-8 is 0 in float16. A parameter whose gradient is 0 (an unused embedding row) is updated by 0/0, and "
    "becomes NaN.",
    before="""
model = nn.Linear(64, 8).half()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
loss_fn(model(x), y).backward()
optimizer.step()
""",
    after="""
model = nn.Linear(64, 8)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
loss_fn(model(x), y).backward()
optimizer.step()
""",
    fix="keep float32 weights and use autocast, or pass eps=1e-4",
)
def adam_eps(program: Program) -> Iterator[tuple[ast.AST, str]]:
    for trace in program.traces:
        halves = [e for e in _conversions(trace, "float16") if not _back(trace, e)]
        for event in trace.of("optimizer"):
            optimizer = event.optimizer
            if optimizer is None or optimizer.eps is None or optimizer.eps > HALF_LOST or not halves:
                continue
            steps = [s for s in trace.of("opt_step") if s.optimizer is optimizer]
            mine = [c for c in halves if c.model is not None and _trained(trace, c.model, "opt_step")]
            if any(_before_training(c, steps) and any(c.model in contained(m) for m in optimizer.models) for c in mine):
                yield (
                    event.node,
                    f"eps={optimizer.eps:g} is 0 in float16, and these weights are float16: zero gradients give 0/0",
                )


@rule(
    "AMP303",
    "half-weights-without-master-copy",
    Severity.WARNING,
    what="An optimizer steps float16 weights directly.",
    why="An update smaller than about a thousandth of its weight is rounded away, and gradients below 6e-8 are "
    "zero: training stalls without any sign.",
    before="""
model = nn.Linear(64, 8).half()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
loss_fn(model(x), y).backward()
optimizer.step()
""",
    after="""
model = nn.Linear(64, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
loss_fn(model(x), y).backward()
optimizer.step()
""",
    fix="keep float32 weights, and compute in 16 bits with autocast",
)
def half_without_master(program: Program) -> Iterator[tuple[ast.AST, str]]:
    told = {id(node) for check in (adam_eps, half_with_scaler) for node, _ in check(program)}
    for trace in program.traces:
        for event in _conversions(trace, "float16"):
            assert event.model is not None
            steps = [s for s in _trained(trace, event.model, "opt_step") if not _deliberate(s)]
            scaled = _trained(trace, event.model, "step")
            told_of = (
                any(s.optimizer is not None and id(s.optimizer.node) in told for s in steps) or id(event.node) in told
            )
            if steps and not scaled and not told_of and not _back(trace, event) and _before_training(event, steps):
                yield event.node, "an optimizer steps these float16 weights: small updates are rounded away"


def _deliberate(step: Event) -> bool:
    """An eps that was raised for half precision shows that half weights are meant."""
    return step.optimizer is not None and step.optimizer.eps is not None and step.optimizer.eps > HALF_LOST


@rule(
    "AMP304",
    "half-roundtrip-on-training-model",
    Severity.ERROR,
    what="The model in training is converted to 16 bits and back.",
    why="The conversion happens in place: the bits that float32 weights lose do not come back, so that every "
    "validation rounds the model.",
    before="""
for epoch in range(3):
    model.half()
    validate(model)
    model.float()
    loss_fn(model(x), y).backward()
    optimizer.step()
""",
    after="""
for epoch in range(3):
    with autocast("cuda", dtype=torch.float16), torch.no_grad():
        validate(model)
    loss_fn(model(x), y).backward()
    optimizer.step()
""",
    fix="validate under autocast, or on a deepcopy of the model",
)
def roundtrip(program: Program) -> Iterator[tuple[ast.AST, str]]:
    for trace in program.traces:
        for event in _conversions(trace, *HALVES):
            assert event.model is not None
            steps = _trained(trace, event.model, "step", "opt_step")
            if _back(trace, event) and steps and _before_training(event, steps):
                yield (
                    event.node,
                    "this rounds the weights of the model in training, in place: the lost bits do not come back",
                )


@rule(
    "AMP305",
    "ema-in-half",
    Severity.WARNING,
    what="A moving average of weights is kept in 16 bits.",
    why="With a decay of 0.999 each update is a thousandth of the difference, less than 16-bit weights can "
    "resolve: the average stops moving.",
    before="""
import copy

ema = copy.deepcopy(model).half()
for e, p in zip(ema.parameters(), model.parameters()):
    e.data.mul_(0.999).add_(p.data, alpha=0.001)
""",
    after="""
import copy

ema = copy.deepcopy(model)
for e, p in zip(ema.parameters(), model.parameters()):
    e.data.mul_(0.999).add_(p.data, alpha=0.001)
""",
    fix="keep the average in float32, and convert a copy for use",
)
def ema_in_half(program: Program) -> Iterator[tuple[ast.AST, str]]:
    for event in program.of("average"):
        if event.tensor is not None:
            yield event.node, f"a moving average kept in {event.tensor.dtype} stops moving: keep it in float32"
