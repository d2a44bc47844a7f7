"""A child's stdout and stderr, as text with a limit."""

from __future__ import annotations

import codecs
from collections import deque

HEAD_CHARS = 4 * 1024 * 1024
TAIL_CHARS = 128 * 1024


class LogCapture:
    """Turns bytes into the text to store: everything up to ``head_chars``, then only the last ``tail_chars``.

    What was dropped in between is said in the log itself, with its size. Invalid UTF-8 becomes U+FFFD.
    """

    def __init__(self, head_chars: int = HEAD_CHARS, tail_chars: int = TAIL_CHARS) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._room = head_chars
        self._head_chars = head_chars
        self._tail_chars = tail_chars
        self._tail: deque[str] = deque()
        self._num_tail = 0
        self._num_dropped = 0
        self._is_full = False

    def feed(self, data: bytes) -> str:
        """The text to store now; empty once the limit is reached."""
        return self._admit(self._decoder.decode(data))

    def end(self) -> str:
        """The text to store after the last byte: the tail that was held back, and how much is missing before it."""
        rest = self._admit(self._decoder.decode(b"", final=True))
        if not self._is_full:
            return rest
        tail = "".join(self._tail)
        cut = max(0, len(tail) - self._tail_chars)
        num_dropped = self._num_dropped + cut
        gap = f"[ampboard: {num_dropped:,} characters of output were dropped here]\n" if num_dropped else ""
        return f"{rest}{gap}{tail[cut:]}"

    def _admit(self, text: str) -> str:
        if self._is_full:
            self._hold_back(text)
            return ""
        if len(text) <= self._room:
            self._room -= len(text)
            return text
        kept, self._room, self._is_full = text[: self._room], 0, True
        self._hold_back(text[len(kept) :])
        return (
            f"{kept}\n[ampboard: the output passed its limit of {self._head_chars:,} characters; "
            "its last part follows when the run ends]\n"
        )

    def _hold_back(self, text: str) -> None:
        self._tail.append(text)
        self._num_tail += len(text)
        while self._tail and self._num_tail - len(self._tail[0]) >= self._tail_chars:
            gone = len(self._tail.popleft())
            self._num_tail -= gone
            self._num_dropped += gone
