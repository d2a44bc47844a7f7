"""Workloads declare typed parameters; given values are checked with value, rule and remedy."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch
from small_workloads import Classes, DropoutNet
from torch import nn

from amp_core import Metric, Workload
from amp_core.errors import WorkloadError
from amp_core.workload import Parameter, kebab, num_samples_of, param, to_device


class PhotoGPT(Workload):
    """One line.

    More lines.
    """

    width: int = param(64, min=8, max=512, help="Neurons of a layer.")
    lr: float = param(1e-3, min=0)
    kind: str = param("a", choices=["a", "b"])
    residual: bool = True
    batch_size: int = 32
    steps = 50
    table: ClassVar[dict[str, int]] = {}
    _private: int = 3


def test_declaration() -> None:
    assert (PhotoGPT.name, PhotoGPT.title, PhotoGPT.summary) == ("photo-gpt", "Photo gpt", "One line.")
    assert [p.name for p in PhotoGPT.parameters()] == ["width", "lr", "kind", "residual", "batch_size"]
    assert PhotoGPT.parameters()[0] == Parameter(
        name="width", type="int", default=64, minimum=8, maximum=512, help="Neurons of a layer."
    )
    assert PhotoGPT.primary == Metric("loss", False, 0.01, relative=True)
    assert PhotoGPT().values() == {"width": 64, "lr": 1e-3, "kind": "a", "residual": True, "batch_size": 32}


def test_values_are_converted_where_nothing_is_lost() -> None:
    workload = PhotoGPT(width=16.0, lr=1)
    assert (workload.width, workload.lr) == (16, 1.0)
    assert isinstance(workload.width, int)
    assert isinstance(workload.lr, float)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"width": 4}, "width=4 must be at least 8"),
        ({"width": 600}, "width=600 must be at most 512"),
        ({"width": 16.5}, "width=16.5 must be int"),
        ({"width": True}, "width=True must be int"),
        ({"width": "64"}, "must be int, not str"),
        ({"lr": float("nan")}, "must be finite"),
        ({"residual": 1}, "must be bool"),
        ({"kind": "c"}, "kind='c' is not one of 'a', 'b'"),
        ({"depth": 3}, "has no parameter 'depth': its parameters are width, lr"),
    ],
)
def test_wrong_values_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        PhotoGPT(**given)


def test_subclasses_inherit_and_override_parameters() -> None:
    class Wider(PhotoGPT):
        width: int = 128

    assert [p.name for p in Wider.parameters()] == ["width", "lr", "kind", "residual", "batch_size"]
    assert (Wider().width, PhotoGPT().width) == (128, 64)
    assert Wider.name == "wider"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"__annotations__": {"sizes": list}, "sizes": [1]}, "a parameter is int, float, bool or str"),
        ({"__annotations__": {"width": int}}, "has no default"),
        ({"__annotations__": {"width": int}, "width": param(3, min=8)}, "at least 8"),
    ],
)
def test_wrong_declarations_are_refused(body: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        type("Broken", (Workload,), body)


def test_a_margin_must_be_positive() -> None:
    with pytest.raises(WorkloadError, match="margin"):
        Metric("loss", False, 0.0)


def test_required_methods_say_so() -> None:
    with pytest.raises(NotImplementedError, match=r"PhotoGPT must define model\(self\)"):
        PhotoGPT().model()
    with pytest.raises(NotImplementedError, match="must define batches"):
        PhotoGPT().batches("train", 0)


def test_default_metrics_weigh_samples() -> None:
    workload = Classes()
    model = workload.model().eval()
    batches = list(workload.batches("eval", 0))
    x, y = (torch.cat(parts) for parts in zip(*batches, strict=True))
    uneven = [(x[:5], y[:5]), (x[5:], y[5:])]
    with torch.no_grad():
        results = workload.metrics(model, uneven)
        outputs = model(x)
        assert set(DropoutNet().metrics(model, [(x, x[:, :4])])) == {"loss"}
    assert results["loss"] == pytest.approx(float(nn.functional.cross_entropy(outputs, y)), rel=1e-5)
    assert results["accuracy"] == float((outputs.argmax(1) == y).double().mean())
    with pytest.raises(WorkloadError, match="no eval batches"):
        workload.metrics(model, [])


def test_default_optimizer_takes_the_declared_rate() -> None:
    parameter = nn.Parameter(torch.ones(1))
    assert PhotoGPT(lr=0.5).optimizer([parameter]).param_groups[0]["lr"] == 0.5
    assert Classes().optimizer([parameter]).param_groups[0]["fused"] is True


def test_batches_of_many_shapes() -> None:
    batch = {"x": [torch.ones(5, 2), "label"], "y": torch.ones(5)}
    assert num_samples_of(batch) == 5
    assert num_samples_of(torch.tensor(1.0)) == 1
    with pytest.raises(WorkloadError, match="holds no tensor"):
        num_samples_of(["a"])
    moved = to_device(batch, torch.device("meta"))
    assert moved["x"][0].device.type == "meta"
    assert moved["x"][1] == "label"
    assert to_device(batch, torch.device("cpu")) is batch


@pytest.mark.parametrize(
    ("name", "expected"),
    [("StdlibGPT", "stdlib-gpt"), ("DigitsCNN", "digits-cnn"), ("Net2Wide", "net2-wide"), ("a_b", "a-b")],
)
def test_names(name: str, expected: str) -> None:
    assert kebab(name) == expected
