"""Abstract values: what the interpreter knows of an object without running anything.

Tensors and constants are immutable; scalers, optimizers and models have identity, since what happens to them is what
rules look at. `UNKNOWN` means that nothing is known, and no rule concludes anything from it.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace
from typing import Any

HALVES = frozenset({"float16", "bfloat16"})


@dataclass(eq=False, slots=True)
class Value:
    """Anything a name may be bound to."""


@dataclass(eq=False, slots=True)
class Unknown(Value):
    """Nothing is known."""


UNKNOWN = Unknown()


@dataclass(eq=False, slots=True)
class Const(Value):
    """A literal, or what literals fold to: None, bool, int, float, str."""

    value: Any


@dataclass(eq=False, slots=True)
class Test(Value):
    """A truth value that is not known, but whose question is: `kind` is periodic, finite or scale."""

    kind: str


@dataclass(eq=False, slots=True)
class External(Value):
    """Something imported, by its dotted name."""

    name: str


@dataclass(eq=False, slots=True)
class Device(Value):
    """A torch.device of one of these types."""

    names: frozenset[str]


@dataclass(eq=False, slots=True)
class DType(Value):
    """A torch dtype, `float16` for torch.half."""

    name: str


@dataclass(eq=False, slots=True)
class OneOf(Value):
    """One of a few alternatives, from branches or conditional expressions."""

    alternatives: tuple[Value, ...]


@dataclass(eq=False, slots=True)
class Items(Value):
    """A tuple or list; `open` when more items than listed may be in it."""

    items: list[Value]
    open: bool = False


@dataclass(eq=False, slots=True)
class Mapping(Value):
    """A dict with constant keys; `open` when it may hold more, which then is like `default`."""

    items: dict[Any, Value]
    open: bool = False
    default: Value = UNKNOWN


@dataclass(eq=False, slots=True)
class Iterable(Value):
    """A generator, or another iterable whose elements are alike."""

    element: Value


@dataclass(eq=False, slots=True)
class Scope:
    """Names of one module, class body or function call."""

    names: dict[str, Value]
    parent: Scope | None = None
    is_class: bool = False
    globals: set[str] = field(default_factory=set)

    def find(self, name: str) -> Scope | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope
            scope = scope.parent
        return None


@dataclass(eq=False, slots=True)
class Function(Value):
    """A function or lambda of this module; `owner` is what it is bound to."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    scope: Scope
    owner: Value | None = None


@dataclass(eq=False, slots=True)
class Class(Value):
    """A class of this module. `bases` are dotted names of everything it derives from, as far as known."""

    node: ast.ClassDef
    scope: Scope
    bases: frozenset[str]
    parents: tuple[Class, ...]

    def method(self, name: str) -> Function | None:
        found = self.scope.names.get(name)
        if isinstance(found, Function):
            return found
        for parent in self.parents:
            if (inherited := parent.method(name)) is not None:
                return inherited
        return None


@dataclass(eq=False, slots=True)
class Object(Value):
    """An instance: of a class of this module, of a torch module, or of something whose use shows that it is a model."""

    kind: str
    cls: Class | None = None
    attributes: dict[str, Value] = field(default_factory=dict)
    children: tuple[Value, ...] = ()
    weights: str | None = None
    is_module: bool = False
    loops: tuple[int, ...] = ()
    copied: bool = False
    data_parallel: bool = False


@dataclass(eq=False, slots=True)
class Scaler(Value):
    """A GradScaler, or a framework's object that scales by itself; `enabled` is None when a flag decides."""

    node: ast.AST | None
    enabled: bool | None
    loops: tuple[int, ...] = ()
    kind: str = "GradScaler"
    devices: frozenset[str] = frozenset()
    updates: int = 0


@dataclass(eq=False, slots=True)
class Autocast(Value):
    """An autocast context before it is entered; `dtype` is None when a flag decides."""

    node: ast.AST
    dtype: str | None
    enabled: bool | None
    devices: frozenset[str]
    cached: bool = True


@dataclass(eq=False, slots=True)
class Bound(Value):
    """A method of a value that is not a class of this module."""

    receiver: Value
    name: str


@dataclass(eq=False, slots=True)
class Partial(Value):
    """functools.partial of something."""

    callee: Value
    positional: list[Value]
    keywords: dict[str, Value]


@dataclass(eq=False, slots=True)
class Super(Value):
    """super() in a method of `owner`."""

    owner: Object


@dataclass(eq=False, slots=True)
class NullContext(Value):
    """contextlib.nullcontext()."""


@dataclass(eq=False, slots=True)
class Optimizer(Value):
    """An optimizer and the models whose parameters it was given."""

    node: ast.AST | None
    kind: str
    models: frozenset[Object]
    eps: float | None = None
    loops: tuple[int, ...] = ()
    scaled_by: Scaler | None = None


@dataclass(eq=False, slots=True)
class Scheduler(Value):
    """A learning-rate schedule."""

    optimizer: Value


@dataclass(eq=False, slots=True)
class Parameters(Value):
    """model.parameters() or named_parameters()."""

    models: frozenset[Object]
    named: bool = False


@dataclass(eq=False, slots=True)
class StateDict(Value):
    """state_dict() of a scaler, optimizer or model."""

    of: Value


@dataclass(frozen=True, slots=True)
class Scaled:
    """That a value carries a loss scale: whose, and as of which update."""

    scaler: Scaler
    version: int


@dataclass(eq=False, slots=True)
class ScaleValue(Value):
    """scaler.get_scale(), or one over it."""

    scaler: Scaler
    version: int
    inverse: bool = False


@dataclass(eq=False, slots=True)
class Tensor(Value):
    """A tensor, or a Python number read from one (`is_number`). `dtype` is None when not certain."""

    dtype: str | None = None
    models: frozenset[Object] = frozenset()
    regions: frozenset[Any] = frozenset()
    scaled: Scaled | None = None
    reading: Any = None
    detached: bool = False
    divided: bool = False
    multiplied: bool = False
    parameter_of: Object | None = None
    gradient_of: Object | None = None
    from_grad: bool = False
    positions: bool = False
    extent: int | None = None
    near_one: bool = False
    complement: ast.AST | None = None
    lost_eps: Any = None
    huge: ast.AST | None = None
    square: ast.AST | None = None
    mean_square: ast.AST | None = None
    is_number: bool = False
    is_buffer: bool = False

    def plain(self) -> Tensor:
        """The same origin without what only the exact value has (positions, squares, lost eps)."""
        return replace(
            self,
            positions=False,
            extent=None,
            near_one=False,
            complement=None,
            lost_eps=None,
            huge=None,
            square=None,
            mean_square=None,
            reading=None,
            parameter_of=None,
            is_buffer=False,
        )
