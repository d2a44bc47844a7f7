"""Trainers of frameworks: Lightning's Trainer and Transformers' TrainingArguments, as far as precision goes."""

from __future__ import annotations

import ast

from amp_core.lint.alternatives import strings, truth
from amp_core.lint.interpreter.calls import Arguments
from amp_core.lint.interpreter.machine import Machine
from amp_core.lint.interpreter.training_calls import note_precision
from amp_core.lint.values import UNKNOWN, Const, Object, Value

LIGHTNING = {"pytorch_lightning.Trainer", "lightning.Trainer", "lightning.pytorch.Trainer"}
ARGUMENTS = {"transformers.TrainingArguments", "transformers.Seq2SeqTrainingArguments"}
TRAINERS = {"transformers.Trainer", "transformers.Seq2SeqTrainer", "trl.SFTTrainer"}


def call(machine: Machine, node: ast.Call, name: str, arguments: Arguments) -> Value | None:
    """The value of making a trainer or its arguments; None for anything else."""
    if name in LIGHTNING:
        _lightning(machine, arguments)
    elif name in ARGUMENTS:
        return _arguments(machine, node, arguments)
    elif name in TRAINERS:
        _trainer(machine, node, arguments)
    else:
        return None
    return UNKNOWN


def _lightning(machine: Machine, arguments: Arguments) -> None:
    value = arguments.get(-1, "precision") or UNKNOWN
    if isinstance(value, Const) and value.value == 16:
        note_precision(machine, frozenset({"16"}))
    note_precision(machine, strings(value))


def _arguments(machine: Machine, node: ast.Call, arguments: Arguments) -> Value:
    fp16 = truth(arguments.get(-1, "fp16") or Const(value=False)) is True
    bf16 = truth(arguments.get(-1, "bf16") or Const(value=False)) is True
    if fp16 and bf16:
        machine.emit("both_precisions", node)
    elif fp16 or bf16:
        note_precision(machine, frozenset({"fp16" if fp16 else "bf16"}))
    return Object("TrainingArguments", attributes={"fp16": Const(fp16 and not bf16)})


def _trainer(machine: Machine, node: ast.Call, arguments: Arguments) -> None:
    model, options = arguments.get(0, "model"), arguments.get(1, "args")
    fp16 = options.attributes.get("fp16") if isinstance(options, Object) else None
    if isinstance(model, Object) and isinstance(fp16, Const) and fp16.value and model.weights == "float16":
        machine.emit("trainer", node, model=model)
