"""Output becomes text with a limit that says what it dropped."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from worker.log_capture import LogCapture


def test_bytes_cut_inside_a_character_are_joined() -> None:
    capture = LogCapture()
    data = "naïve ∞".encode()
    assert "".join(capture.feed(data[i : i + 1]) for i in range(len(data))) + capture.end() == "naïve ∞"


def test_invalid_bytes_are_shown_as_such() -> None:
    capture = LogCapture()
    assert capture.feed(b"a\xffb") + capture.end() == "a\ufffdb"


def test_the_head_and_the_tail_stay_and_the_gap_is_told() -> None:
    capture = LogCapture(head_chars=10, tail_chars=5)
    out = capture.feed(b"0123456789abcdefghij") + capture.feed(b"KLMNO") + capture.end()
    assert out.startswith("0123456789\n[ampboard: the output passed its limit of 10 characters")
    assert out.endswith("[ampboard: 10 characters of output were dropped here]\nKLMNO")


def test_output_just_above_the_limit_loses_nothing() -> None:
    capture = LogCapture(head_chars=4, tail_chars=5)
    assert (capture.feed(b"abcdef") + capture.end()).endswith("]\nef")


@given(st.lists(st.text(max_size=30), max_size=20), st.integers(1, 50), st.integers(1, 20))
def test_every_character_is_kept_or_counted(pieces: list[str], head: int, tail: int) -> None:
    capture = LogCapture(head, tail)
    text = "".join(pieces)
    out = "".join(capture.feed(piece.encode()) for piece in pieces) + capture.end()
    if len(text) <= head:
        assert out == text
        return
    assert out.startswith(text[:head])
    assert out.endswith(text[max(head, len(text) - tail) :])
    num_dropped = max(0, len(text) - head - tail)
    assert (f"{num_dropped:,} characters of output were dropped" in out) == (num_dropped > 0)
