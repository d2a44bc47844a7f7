"""Typed parameters of a workload: they become a form's fields, and every given value is checked against them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from amp_core.errors import WorkloadError

Value = int | float | bool | str
TYPES: dict[str, type] = {"int": int, "float": float, "bool": bool, "str": str}


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One typed parameter. ``minimum`` and ``maximum`` are inclusive; ``choices`` lists every accepted value."""

    name: str
    type: str  # int, float, bool or str
    default: Value
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[Value, ...] | None = None
    help: str = ""

    def accept(self, value: object) -> Value:
        """The value in this parameter's type. Raises `WorkloadError` naming value, rule and remedy."""
        converted = self._convert(value)
        if self.choices is not None and converted not in self.choices:
            allowed = ", ".join(repr(choice) for choice in self.choices)
            raise WorkloadError(f"{self.name}={converted!r} is not one of {allowed}: choose one of these")
        if isinstance(converted, float) and not math.isfinite(converted):
            raise WorkloadError(f"{self.name}={converted!r} must be finite: the default is {self.default!r}")
        if isinstance(converted, int | float) and not isinstance(converted, bool):
            if self.minimum is not None and converted < self.minimum:
                raise WorkloadError(f"{self.name}={converted!r} must be at least {self.minimum:g}: raise it")
            if self.maximum is not None and converted > self.maximum:
                raise WorkloadError(f"{self.name}={converted!r} must be at most {self.maximum:g}: lower it")
        return converted

    def _convert(self, value: object) -> Value:
        if self.type == "float" and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if self.type == "int" and isinstance(value, float) and value.is_integer():
            return int(value)
        if type(value) is TYPES[self.type]:
            return value  # type: ignore[return-value]  # one of the four types, just checked
        raise WorkloadError(
            f"{self.name}={value!r} must be {self.type}, not {type(value).__name__}: the default is {self.default!r}"
        )


@dataclass(frozen=True, kw_only=True)
class Field:
    """What `param` leaves on the class until the class is complete and the field has its name and type."""

    default: Value
    minimum: float | None
    maximum: float | None
    choices: tuple[Value, ...] | None
    help: str


def param(
    default: Any,
    *,
    min: float | None = None,
    max: float | None = None,
    choices: Sequence[Value] | None = None,
    help: str = "",
) -> Any:
    """A default with its limits, for an annotated attribute of a `Workload`: ``lr: float = param(1e-3, min=0)``."""
    return Field(
        default=default, minimum=min, maximum=max, choices=None if choices is None else tuple(choices), help=help
    )


def parameter_of(name: str, annotation: object, given: object) -> Parameter:
    """The parameter an annotated class attribute declares; its default must satisfy its own limits.

    Raises:
        WorkloadError: for another type than int, float, bool or str, for a missing default, or for one out of limits.
    """
    type_name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", repr(annotation))
    type_name = type_name.strip("\"'")
    if type_name not in TYPES:
        raise WorkloadError(
            f"parameter {name!r} is annotated {type_name}: a parameter is int, float, bool or str; "
            "drop the annotation, or write ClassVar, if it is none"
        )
    field = given if isinstance(given, Field) else param(given)
    parameter = Parameter(
        name=name,
        type=type_name,
        default=field.default,
        minimum=field.minimum,
        maximum=field.maximum,
        choices=field.choices,
        help=field.help,
    )
    default = parameter.accept(field.default)
    return Parameter(**{**vars(parameter), "default": default})


def accept_all(parameters: Sequence[Parameter], given: Mapping[str, object], owner: str) -> dict[str, Value]:
    """Every parameter's value: given or default. Raises `WorkloadError`, also for a name that is no parameter."""
    known = {parameter.name: parameter for parameter in parameters}
    for name in given:
        if name not in known:
            listed = ", ".join(known) or "none"
            raise WorkloadError(f"{owner} has no parameter {name!r}: its parameters are {listed}")
    return {name: parameter.accept(given.get(name, parameter.default)) for name, parameter in known.items()}
