"""Reproduces one numeric fault from the files beside this one. Needs Python and PyTorch, nothing else.

    python reproduce.py

It repeats the operation with the very numbers it got, in the precision of the run and in float64, and then the whole
step from the saved state and batch. Exit code 0: the fault shows again; 1: it does not.
"""

# ruff: noqa: T201 - a script for a terminal
from __future__ import annotations

import importlib.util
import json
import sys
import types
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).resolve().parent
SMALL_ERROR = 1e-2
SAME_LOSS = 0.05


def main() -> int:
    told = json.loads((HERE / "diagnosis.json").read_text())
    print(f"PyTorch {torch.__version__}. {told['sentence']}\n")
    shown = [operation(told), step(told)]
    again = any(shown)
    print(f"\n{'REPRODUCED' if again else 'NOT REPRODUCED'}: {told['kind']} in {told['module'] or 'the model'}")
    return 0 if again else 1


def loaded(name: str) -> Any:
    path = HERE / name
    return torch.load(path, weights_only=True) if path.exists() else None


def operation(told: dict[str, Any]) -> bool:
    """The operation alone. Whether its result shows the fault."""
    calls = loaded("operation.pt")
    if calls is None:
        print("The operation itself is not in this bundle (too large, or the fault is none of a single operation).")
        return False
    low, exact = result(calls, wide=False), result(calls, wide=True)
    error = (low.double() - exact).abs()
    bad = ~torch.isfinite(low)
    flushed = (low == 0) & (exact != 0) & torch.isfinite(exact)
    finite = error[torch.isfinite(error)]
    size = exact[torch.isfinite(exact)].abs()
    largest = float(size.max()) if size.numel() else float("nan")
    relative = float(finite.max()) / largest if finite.numel() and largest > 0 else 0.0
    names = " then ".join(call["op"] for call in calls)
    print(f"Operation {names}: {low.numel()} results in {str(low.dtype).removeprefix('torch.')}")
    print(f"  not finite: {int(bad.sum())}; of these finite in float64: {int((bad & torch.isfinite(exact)).sum())}")
    print(f"  exactly zero although not zero in float64: {int(flushed.sum())}")
    print(f"  max |x| in float64: {largest:.6g}; largest error beside it: {relative:.3g}")
    if told["kind"] in ("overflow", "nan_of_infinities", "domain_error"):
        return bool(bad.any())
    return bool(flushed.any()) if told["kind"] == "underflow" else relative > SMALL_ERROR or bool(flushed.any())


def result(calls: list[dict[str, Any]], wide: bool) -> torch.Tensor:
    """What the calls give one after another."""
    last: Any = None
    for call in calls:
        function = getattr(getattr(torch.ops.aten, call["op"]), call["overload"])
        args = [value_of(value, last, wide) for value in call["args"]]
        kwargs = {name: value_of(value, last, wide) for name, value in call["kwargs"].items()}
        made = function(*args, **kwargs)
        last = made[0] if isinstance(made, tuple | list) else made
    assert isinstance(last, torch.Tensor)
    return last


def value_of(value: Any, last: Any, wide: bool) -> Any:
    """An argument as the operation takes it; in float64 if ``wide``."""
    if isinstance(value, torch.Tensor):
        value = value.clone()
        return value.double() if wide and value.is_floating_point() else value
    if isinstance(value, dict) and "dtype" in value:
        dtype = getattr(torch, value["dtype"])
        return torch.float64 if wide and dtype.is_floating_point else dtype
    if isinstance(value, dict) and "previous" in value:
        return last
    if isinstance(value, list):
        return [value_of(part, last, wide) for part in value]
    return value


def step(told: dict[str, Any]) -> bool:
    """The whole step under `torch.autocast`, forward and backward. Whether anything of it is not finite."""
    state, batches = loaded("state.pt"), loaded("batch.pt")
    if state is None or batches is None or not (HERE / "workload.py").exists():
        print("\nThe whole step is not in this bundle.")
        return False
    recipe = json.loads((HERE / "recipe.json").read_text())
    try:
        workload = found_workload(told)
        print("\nThe whole step in FP32:")
        _, wide = one_step(workload, state, batches, None, 1.0)
        dtype = torch.float16 if recipe["precision"].startswith("16") else torch.bfloat16
        print(f"The whole step under torch.autocast({dtype}), loss scale {told['scale'] or 1:g}:")
        bad, loss = one_step(workload, state, batches, dtype, told["scale"] or 1.0)
    except Exception as error:  # noqa: BLE001 - whatever it raises is what is to be shown
        print(f"  it stops with {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
        return bool(told["symptom"] == "error")
    return bad or (told["symptom"] == "quality" and abs(loss - wide) > SAME_LOSS * abs(wide))


def one_step(
    workload: Any, state: Any, batches: list[Any], dtype: torch.dtype | None, scale: float
) -> tuple[bool, float]:
    """Forward and backward; whether something is not finite, and the mean loss."""
    torch.manual_seed(0)
    model = workload.model().train()
    model.load_state_dict(state, strict=False)
    first: list[str] = []

    def watch(name: str) -> Any:
        def hook(_module: Any, _args: Any, output: Any) -> None:
            values = output if isinstance(output, tuple | list) else [output]
            tensors = [v for v in values if isinstance(v, torch.Tensor) and v.is_floating_point()]
            if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors):
                first.append(name or "(the model itself)")

        return hook

    for name, module in model.named_modules():
        module.register_forward_hook(watch(name))
    losses = []
    for batch in batches:
        with torch.autocast("cpu", dtype=dtype or torch.bfloat16, enabled=dtype is not None):
            loss = workload.loss(model, batch)
        losses.append(float(loss.detach()))
        (loss * torch.tensor(scale / len(batches))).backward()
    named = [(n, p.grad) for n, p in model.named_parameters() if p.grad is not None]
    bad = [name for name, gradient in named if not bool(torch.isfinite(gradient).all())]
    print(f"  loss {losses}; first output that is not finite: {first[0] if first else 'none'}")
    print(f"  gradients that are not finite: {', '.join(bad[:5]) or 'none'}")
    not_finite = any(loss != loss or abs(loss) == float("inf") for loss in losses)
    return bool(first or bad or not_finite), sum(losses) / len(losses)


def found_workload(told: dict[str, Any]) -> Any:
    """The workload of the run, from its source file, with a stand-in for the class it derives from."""
    if importlib.util.find_spec("amp_core") is None:
        stand_in = types.ModuleType("amp_core")
        stand_in.__dict__.update(
            Workload=Workload, Metric=lambda *args, **kwargs: (args, kwargs), param=lambda default, **_limits: default
        )
        sys.modules["amp_core"] = sys.modules["amp_core.workload"] = stand_in
    spec = importlib.util.spec_from_file_location("workload_of_the_run", HERE / "workload.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["workload_of_the_run"] = module
    spec.loader.exec_module(module)
    for value in vars(module).values():
        if isinstance(value, type) and value.__name__ == told["workload_class"]:
            return value(**told["params"])
    raise LookupError(f"no class {told['workload_class']} in workload.py")


class Workload:
    """What a workload inherits: its parameters, and a loss for pairs (x, y)."""

    def __init__(self, **params: Any) -> None:
        for name, value in params.items():
            setattr(self, name, value)

    def loss(self, model: Any, batch: Any) -> torch.Tensor:
        inputs, targets = batch
        output = model(inputs)
        if targets.is_floating_point():
            return torch.nn.functional.mse_loss(output, targets)
        return torch.nn.functional.cross_entropy(output, targets)


if __name__ == "__main__":
    sys.exit(main())
