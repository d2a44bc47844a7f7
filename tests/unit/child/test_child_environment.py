"""No secret of the server or the worker reaches a workload."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amp_core.child_environment import child_environment


@pytest.mark.parametrize(
    "name",
    [
        "AMPBOARD_DATABASE_URL", "AMPBOARD_TOKEN", "DATABASE_URL", "CELERY_BROKER_URL", "AWS_SECRET_ACCESS_KEY",
        "GITHUB_TOKEN", "HF_TOKEN", "TORCH_HUB_TOKEN", "PGPASSWORD", "http_proxy", "CUDA_API_KEY", "SSH_AUTH_SOCK",
    ],
)  # fmt: skip
def test_what_is_not_on_the_list_stays_out(name: str) -> None:
    assert name not in child_environment({name: "value", "PATH": "/bin"})


def test_what_a_run_needs_comes_along() -> None:
    given_ = {"PATH": "/bin", "HOME": "/home/a", "CUDA_VISIBLE_DEVICES": "1", "OMP_NUM_THREADS": "2", "LC_ALL": "C"}
    assert child_environment(given_) == {**given_, "PYTHONHASHSEED": "0"}


def test_string_hashing_is_pinned_unless_it_is_chosen() -> None:
    assert child_environment({"PYTHONHASHSEED": "7"})["PYTHONHASHSEED"] == "7"


@given(st.text(alphabet="ABCDEFGHIJKLMNOPQRSTUVWXYZ_", max_size=30))
def test_nothing_under_the_products_prefix_passes(rest: str) -> None:
    assert f"AMPBOARD_{rest}" not in child_environment({f"AMPBOARD_{rest}": "x"})
