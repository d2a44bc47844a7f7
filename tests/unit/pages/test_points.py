"""What charts get: the windows of REST, shorter; and answers that are compressed only where that is safe."""

from __future__ import annotations

import gzip
import math

from fastapi import Request
from fastapi.responses import Response
from hypothesis import given
from hypothesis import strategies as st

from server.pages.compression import SMALLEST, compressed
from server.pages.points import short
from server.pages.render import WITH_SECRETS


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32)))
def test_float32_figures_keep_their_precision(values: list[float]) -> None:
    window = {"kind": "exact", "num_stored": len(values), "bin_width": None, "steps": list(range(len(values)))}
    for given_value, told in zip(values, short(window | {"values": values})["values"], strict=True):
        assert math.isclose(given_value, told, rel_tol=5e-7, abs_tol=1e-320)


def test_non_finite_figures_keep_their_names() -> None:
    window = {"kind": "exact", "num_stored": 2, "bin_width": None, "steps": [1, 2], "values": ["NaN", "-Infinity"]}
    assert short(window)["values"] == ["NaN", "-Infinity"]


def asked(encoding: str) -> Request:
    return Request({"type": "http", "headers": [(b"accept-encoding", encoding.encode())]})


def test_large_answers_are_compressed_for_clients_that_take_it() -> None:
    body = b"x" * (SMALLEST + 1)
    answer = compressed(asked("gzip, br"), Response(body))
    assert gzip.decompress(bytes(answer.body)) == body
    assert answer.headers["content-length"] == str(len(answer.body))
    assert compressed(asked("identity"), Response(body)).body == body
    assert "content-encoding" not in compressed(asked("gzip"), Response(b"x")).headers


def test_pages_with_secrets_are_never_compressed() -> None:
    assert {"account.html", "signin.html"} <= WITH_SECRETS
