"""Logging of server and worker: configured once, the run bound to each line, secrets never written."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_run_id: ContextVar[int | None] = ContextVar("run_id", default=None)

_SECRETS = (
    (re.compile(r"\b(amp|link|ses)_[A-Za-z0-9_-]{16,}"), r"\1_[redacted]"),
    (re.compile(r"(://[^\s:/@]*:)[^\s@]+@"), r"\1[redacted]@"),
    (re.compile(r"(?i)\b(token|password|passwd|secret|api_key)(\"?\s*[=:]\s*\"?)[^\s&\"',;]+"), r"\1\2[redacted]"),
    (re.compile(r"(?i)\bbearer\s+[^\s\"',;]+"), "Bearer [redacted]"),
)


def redact(text: str) -> str:
    """The text without API tokens, sign-in tokens, session cookies and passwords in URLs."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


@contextmanager
def bound_run(run_id: int) -> Iterator[None]:
    """Name the run in every line logged inside the block (in this thread or task)."""
    token = _run_id.set(run_id)
    try:
        yield
    finally:
        _run_id.reset(token)


class RedactingFormatter(logging.Formatter):
    """One line per record: time, level, logger, run when bound, message; secrets removed, tracebacks included."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        run_id = _run_id.get()
        return redact(line if run_id is None else f"{line} run_id={run_id}")


def configure(level: str) -> None:
    """Send every record at or above ``level`` to standard error. Calling it again only changes the level."""
    root = logging.getLogger()
    root.setLevel(level)
    if not any(isinstance(handler.formatter, RedactingFormatter) for handler in root.handlers):
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(RedactingFormatter())
        root.addHandler(handler)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "celery"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    for name in ("alembic", "httpx", "httpcore"):  # they narrate at INFO what concerns nobody
        logging.getLogger(name).setLevel(logging.WARNING)
