"""Logging of server and worker: configured once, the run bound to each line, secrets never written."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Literal

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


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time (UTC), level, logger, message, run_id when bound, traceback; secrets removed."""

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, str | int] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": redact(record.getMessage()),
        }
        if (run_id := _run_id.get()) is not None:
            told["run_id"] = run_id
        if record.exc_info:
            told["traceback"] = redact(self.formatException(record.exc_info))
        return json.dumps(told)  # ASCII: U+2028 and U+0085 would end a line for some readers


class RedactingFormatter(logging.Formatter):
    """One line per record: time, level, logger, run when bound, message; secrets removed, tracebacks included."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        run_id = _run_id.get()
        return redact(line if run_id is None else f"{line} run_id={run_id}")


def configure(level: str, style: Literal["text", "json"] = "text") -> None:
    """Send every record at or above ``level`` to standard error. Calling it again changes level and style."""
    root = logging.getLogger()
    root.setLevel(level)
    ours = [handler for handler in root.handlers if isinstance(handler.formatter, RedactingFormatter | JsonFormatter)]
    if not ours:
        ours = [logging.StreamHandler(sys.stderr)]
        root.addHandler(ours[0])
    for handler in ours:
        handler.setFormatter(JsonFormatter() if style == "json" else RedactingFormatter())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "celery"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    for name in ("alembic", "httpx", "httpcore"):  # they narrate at INFO what concerns nobody
        logging.getLogger(name).setLevel(logging.WARNING)
