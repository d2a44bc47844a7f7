"""Checkpoints that forget the scaler."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from amp_core.lint.alternatives import alternatives
from amp_core.lint.finding import Severity
from amp_core.lint.program import Program
from amp_core.lint.rule import rule
from amp_core.lint.values import Mapping, Optimizer, StateDict, Value


@rule(
    "AMP151",
    "checkpoint-missing-scaler-state",
    Severity.WARNING,
    what="A checkpoint holds the states of model and optimizer, but not of the scaler.",
    why="After a resume the scale restarts at 65536 and its growth counter at 0: the first steps overflow and are"
    " skipped, and the run is no longer the one that was interrupted.",
    before="""
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "checkpoint.pt")
""",
    after="""
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
torch.save(
    {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scaler": scaler.state_dict()}, "checkpoint.pt"
)
""",
    fix='add "scaler": scaler.state_dict(), and load it with scaler.load_state_dict()',
)
def missing_state(program: Program) -> Iterator[tuple[ast.AST, str]]:
    if any(True for _ in program.of("scaler_state")) or not _scales_itself(program):
        return
    for event in program.of("save"):
        if _is_checkpoint(event.detail):
            yield event.node, "the checkpoint holds model and optimizer, but not scaler.state_dict()"


def _scales_itself(program: Program) -> bool:
    """Whether a GradScaler of this file, not a framework's, steps here."""
    return any(
        e.scaler is not None and e.scaler.kind == "GradScaler" and e.scaler.enabled is not False
        for e in program.of("step")
    )


def _is_checkpoint(value: Value | None) -> bool:
    """Whether a dict holds the state of an optimizer and of something else, and nothing that may be the scaler's."""
    if not isinstance(value, Mapping) or value.open:
        return False
    parts = [part for item in value.items.values() for part in alternatives(item)]
    states = [part.of for part in parts if isinstance(part, StateDict)]
    names = [str(key).lower() for key in value.items]
    named = any("scaler" in name or name == "amp" for name in names) or any(isinstance(p, Mapping) for p in parts)
    return len(states) > 1 and any(isinstance(of, Optimizer) for of in states) and not named


@rule(
    "AMP152",
    "scaler-state-not-restored",
    Severity.WARNING,
    what="The scaler's state is saved, and model and optimizer are restored, but the scaler is not.",
    why="After a resume the scale restarts at 65536, as if it had not been saved.",
    before="""
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
torch.save({"model": model.state_dict(), "opt": optimizer.state_dict(), "scaler": scaler.state_dict()}, "last.pt")
state = torch.load("last.pt")
model.load_state_dict(state["model"])
optimizer.load_state_dict(state["opt"])
""",
    after="""
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
torch.save({"model": model.state_dict(), "opt": optimizer.state_dict(), "scaler": scaler.state_dict()}, "last.pt")
state = torch.load("last.pt")
model.load_state_dict(state["model"])
optimizer.load_state_dict(state["opt"])
scaler.load_state_dict(state["scaler"])
""",
    fix="call scaler.load_state_dict() beside optimizer.load_state_dict()",
)
def not_restored(program: Program) -> Iterator[tuple[ast.AST, str]]:
    saved = any(e.scaler is not None and e.scaler.kind == "GradScaler" for e in program.of("scaler_state"))
    if not saved or any(True for _ in program.of("scaler_load")):
        return
    for trace in program.traces:
        restored = [e for e in trace.of("load_state") if e.optimizer is not None]
        if restored:
            loads = [e for e in trace.of("load") if e.index < restored[0].index]
            yield (
                (loads[-1] if loads else restored[-1]).node,
                "optimizer and model are restored, but the scaler's saved state is not",
            )
