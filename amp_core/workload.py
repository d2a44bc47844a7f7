"""What is trained: the class a user writes. Two methods are required, `model` and `batches`; the rest has defaults."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from amp_core.errors import WorkloadError
from amp_core.parameters import Parameter, Value, accept_all, param, parameter_of

__all__ = ["Metric", "Parameter", "Split", "Workload", "param"]

Split = Literal["train", "eval"]
RESERVED = frozenset({"name", "title", "summary", "primary", "steps", "recipes"})


@dataclass(frozen=True)
class Metric:
    """A metric with its direction and the loss of quality that is still acceptable, fixed beforehand.

    ``margin`` is absolute in the metric's unit, or a fraction of the baseline if ``relative``. ``resolution`` is the
    smallest difference the metric can show (1/size of the evaluation set for an accuracy).
    """

    name: str
    higher_is_better: bool
    margin: float
    relative: bool = False
    unit: str = ""
    resolution: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.margin < float("inf"):
            raise WorkloadError(f"margin={self.margin!r} of metric {self.name!r} must be positive and finite")


def kebab(name: str) -> str:
    """``PhotoDenoiser`` → ``photo-denoiser``; ``StdlibGPT`` → ``stdlib-gpt``."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", name)
    return spaced.replace("_", "-").lower()


class Workload:
    """A training task. Subclass it and write `model` and `batches`.

    Annotated class attributes of type int, float, bool or str are parameters (``width: int = 64`` or
    ``lr: float = param(1e-3, min=0)``); on an instance they hold the value in use. A batch is a tensor or a tuple, list
    or dict of tensors; `loss` and `metrics` have defaults for a pair ``(x, y)`` of tensors whose model output is
    ``model(x)``: integer ``y`` means classes and cross entropy, floating ``y`` means mean squared error.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    summary: ClassVar[str]
    primary: ClassVar[Metric] = Metric("loss", False, 0.01, relative=True)
    steps: ClassVar[int] = 200
    recipes: ClassVar[tuple[str | dict[str, Any], ...] | list[str | dict[str, Any]]] = (
        "32-true",
        "bf16-mixed",
        "16-mixed",
    )
    batch_size: int = 64
    _parameters: ClassVar[tuple[Parameter, ...]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = vars(cls)
        cls.name = str(own.get("name", kebab(cls.__name__)))
        cls.title = str(own.get("title", cls.name.replace("-", " ").capitalize()))
        cls.summary = str(own.get("summary", inspect.cleandoc(own.get("__doc__") or "").split("\n\n")[0]))
        declared = {parameter.name: parameter for parameter in cls._parameters}
        for name, annotation in inspect.get_annotations(cls).items():
            if name.startswith("_") or name in RESERVED or "ClassVar" in str(annotation):
                continue
            if name not in own:
                raise WorkloadError(f"parameter {name!r} of {cls.__name__} has no default: give it one")
            declared[name] = parameter_of(name, annotation, own[name])
            setattr(cls, name, declared[name].default)
        cls._parameters = tuple(declared.values())

    def __init__(self, **params: object) -> None:
        values = accept_all(self._parameters, params, f"workload {self.name!r}")
        for name, value in values.items():
            setattr(self, name, value)

    @classmethod
    def is_base(cls) -> bool:
        """Whether the class is only a base for others: it defines nothing that could run."""
        return cls.model is Workload.model and cls.batches is Workload.batches

    @classmethod
    def check_definition(cls) -> None:
        """Raise `WorkloadError` for a class that lacks a method it must have."""
        for method in ("model", "batches"):
            if getattr(cls, method) is getattr(Workload, method):
                raise WorkloadError(f"class {cls.__name__} does not define {method}(): write it")

    @classmethod
    def parameters(cls) -> tuple[Parameter, ...]:
        """The declared parameters, in the order of the class body."""
        return cls._parameters

    def values(self) -> dict[str, Value]:
        """The parameters in use, by name."""
        return {parameter.name: getattr(self, parameter.name) for parameter in self._parameters}

    def model(self) -> nn.Module:
        """A freshly initialised model in float32 on the CPU; its random numbers come from torch's global generator."""
        raise NotImplementedError(f"{type(self).__name__} must define model(self)")

    def batches(self, split: Split, seed: int) -> Iterable[Any]:
        """The batches of one epoch, in an order that depends on ``seed`` alone; ``eval`` ignores the seed."""
        raise NotImplementedError(f"{type(self).__name__} must define batches(self, split, seed)")

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """The scalar training loss of one batch; the engine runs it under the recipe's autocast.

        Sampled steps run it again on copies of the model: keep no count of calls in it.
        """
        inputs, targets = self._pair(batch)
        return self._criterion(model(inputs), targets)

    def metrics(self, model: nn.Module, batches: Iterable[Any]) -> dict[str, float]:
        """Evaluation metrics over all batches: mean ``loss``, and ``accuracy`` where targets are classes.

        The engine calls it in evaluation mode, without gradients, under the recipe's autocast.
        """
        total: Tensor | float = 0.0
        correct: Tensor | float = 0.0
        num_samples = num_classified = 0
        for batch in batches:
            inputs, targets = self._pair(batch)
            outputs = model(inputs)
            total = total + self._criterion(outputs, targets).double() * len(targets)
            num_samples += len(targets)
            if not targets.is_floating_point():
                correct = correct + (outputs.argmax(dim=1) == targets).double().sum()
                num_classified += targets.numel()
        if num_samples == 0:
            raise WorkloadError(f"workload {self.name!r} yields no eval batches: batches('eval', seed) must give some")
        results = {"loss": float(total) / num_samples}
        if num_classified:
            results["accuracy"] = float(correct) / num_classified
        return results

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """AdamW, fused, at the rate of a parameter named ``lr`` if one is declared, else 1e-3."""
        return torch.optim.AdamW(parameters, lr=getattr(self, "lr", 1e-3), fused=True)

    def optimizers(self, model: nn.Module) -> Sequence[torch.optim.Optimizer]:
        """The optimizers, each stepped once per step; by default the one of `optimizer` over all trainable weights.

        Override it for several, or for parameter groups by name. Frozen weights belong in none.
        """
        return [self.optimizer([p for p in model.parameters() if p.requires_grad])]

    def schedule(
        self,
        optimizer: torch.optim.Optimizer,  # noqa: ARG002 - for subclasses
        steps: int,  # noqa: ARG002
    ) -> torch.optim.lr_scheduler.LRScheduler | None:
        """The learning rate schedule of an optimizer over a run of ``steps``; none by default.

        The engine steps it once after each optimizer step that was not skipped.
        """
        return None

    def artifacts(self, model: nn.Module) -> dict[str, bytes]:  # noqa: ARG002 - for subclasses
        """PNG pictures by name, made after the last step under the same conditions as `metrics`; none by default."""
        return {}

    def _pair(self, batch: Any) -> tuple[Tensor, Tensor]:
        if isinstance(batch, (tuple, list)) and len(batch) == 2:
            inputs, targets = batch
            if isinstance(inputs, Tensor) and isinstance(targets, Tensor):
                return inputs, targets
        raise WorkloadError(
            f"the default loss of workload {self.name!r} takes batches (x, y) of tensors, not {type(batch).__name__}: "
            "define loss(self, model, batch) and metrics(self, model, batches)"
        )

    def _criterion(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if not targets.is_floating_point():
            return functional.cross_entropy(outputs, targets)
        if outputs.shape != targets.shape:
            raise WorkloadError(
                f"workload {self.name!r}: model output {tuple(outputs.shape)} and target {tuple(targets.shape)} differ "
                "in shape: make them equal, or define loss(self, model, batch)"
            )
        return functional.mse_loss(outputs, targets)


def tensors_of(batch: Any) -> Iterator[Tensor]:
    """Every tensor of a batch, depth first."""
    if isinstance(batch, Tensor):
        yield batch
    elif isinstance(batch, dict):
        for part in batch.values():
            yield from tensors_of(part)
    elif isinstance(batch, tuple | list):
        for part in batch:
            yield from tensors_of(part)


def num_samples_of(batch: Any) -> int:
    """The batch's size: the first dimension of its first tensor (1 for a scalar). Raises `WorkloadError` for none."""
    first = batch[0] if isinstance(batch, (tuple, list)) and batch else batch
    for tensor in (first,) if isinstance(first, Tensor) else tensors_of(batch):
        return tensor.shape[0] if tensor.ndim else 1
    raise WorkloadError(
        f"a batch of type {type(batch).__name__} holds no tensor: yield tensors, or tuples or dicts of them"
    )


def to_device(batch: Any, device: torch.device) -> Any:
    """The same batch with its tensors on ``device``; on the CPU it is returned as it is."""
    if device.type == "cpu":
        return batch
    if isinstance(batch, Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, dict):
        return {key: to_device(part, device) for key, part in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(to_device(part, device) for part in batch))
    if isinstance(batch, tuple | list):
        return type(batch)(to_device(part, device) for part in batch)
    return batch
