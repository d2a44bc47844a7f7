"""What people type becomes the body that the REST interface takes."""

from __future__ import annotations

import json

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from server.cli.checkpoints import fork_of, kept_of
from server.cli.submit import parameter_of, recipe_of, seeds_of


@pytest.mark.parametrize(
    ("text", "recipe"),
    [
        ("bf16", "bf16"),
        ("fp16:none", {"precision": "fp16", "scaler": "none"}),
        ('{"precision": "16-mixed", "fp32_modules": ["a"]}', {"precision": "16-mixed", "fp32_modules": ["a"]}),
    ],
)
def test_recipes(text: str, recipe: object) -> None:
    assert recipe_of(text) == recipe


@pytest.mark.parametrize(("text", "seeds"), [("5", 5), ("0,1,2", [0, 1, 2]), ("7,", [7])])
def test_seeds(text: str, seeds: object) -> None:
    assert seeds_of(text) == seeds


@pytest.mark.parametrize(
    ("text", "value"),
    [("width=64", 64), ("lr=1e-3", 1e-3), ("flag=true", True), ("name=photo", "photo"), ("expr=a=b", "a=b")],
)
def test_parameters(text: str, value: object) -> None:
    assert parameter_of(text) == (text.split("=")[0], value)


@given(st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.booleans()))
def test_parameter_values_keep_their_type(value: object) -> None:
    parsed = parameter_of(f"x={json.dumps(value)}")[1]
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(("read", "text"), [(recipe_of, "{precision"), (seeds_of, "five"), (parameter_of, "width")])
def test_a_fault_repeats_the_value(read, text: str) -> None:
    with pytest.raises(typer.BadParameter, match=text):
        read(text)


@pytest.mark.parametrize(
    ("text", "fork"),
    [
        ("12@1000", {"run": 12, "step": 1000, "horizon": 200}),
        ("12", {"run": 12, "step": "last", "horizon": 200}),
        ("12@last", {"run": 12, "step": "last", "horizon": 200}),
    ],
)
def test_forks(text: str, fork: object) -> None:
    assert fork_of(text, 200) == fork
    assert fork_of(None, None) is None


@pytest.mark.parametrize(
    ("text", "horizon", "told"),
    [
        ("12@1000", None, "--horizon"),
        (None, 200, "--fork"),
        ("x", 5, "12@1000"),
        ("12@", 5, "12@1000"),
        ("@5", 5, "12@"),
    ],
)
def test_a_fork_needs_both(text: str | None, horizon: int | None, told: str) -> None:
    with pytest.raises(typer.BadParameter, match=told):
        fork_of(text, horizon)


@pytest.mark.parametrize(("text", "kept"), [("last", "last"), ("100,200", [100, 200]), ("7", [7]), (None, None)])
def test_kept_steps(text: str | None, kept: object) -> None:
    assert kept_of(text) == kept


def test_a_kept_step_is_a_number() -> None:
    with pytest.raises(typer.BadParameter, match="first"):
        kept_of("first")
