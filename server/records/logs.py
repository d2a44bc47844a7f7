"""Logs: what the child wrote to stdout and stderr, as one text per attempt."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from server.db.json_values import clean_text
from server.db.tables import Log

_PIECES_AT_ONCE = 64


class LogText(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of an attempt's log: ``text`` begins after ``position`` characters and ends at ``next_position``."""

    attempt: int
    position: int
    next_position: int
    text: str


def add_log(session: Session, run_id: int, attempt: int, position: int, text: str) -> int:
    """Keep the part of the text that is not stored yet and return how many characters that was.

    Pieces may arrive again and may be cut differently when they do; NUL and lone surrogates are replaced.
    """
    end = log_end(session, run_id, attempt)
    text = clean_text(text)
    if position < end:
        text, position = text[end - position :], end
    if text:
        session.add(Log(run_id=run_id, attempt=attempt, position=position, text=text, at=datetime.now(UTC)))
        session.flush()
    return len(text)


def log_end(session: Session, run_id: int, attempt: int) -> int:
    """The number of characters stored of the attempt's log."""
    last = session.execute(
        select(Log.position, func.length(Log.text))
        .where(Log.run_id == run_id, Log.attempt == attempt)
        .order_by(Log.position.desc())
        .limit(1)
    ).first()
    return 0 if last is None else int(last[0]) + int(last[1])


def read_log(session: Session, run_id: int, attempt: int, position: int, max_chars: int) -> LogText:
    """Up to about ``max_chars`` characters of the log from ``position`` on; at least one stored piece when there is."""
    start = max(position, 0)
    first = session.scalar(
        select(func.max(Log.position)).where(Log.run_id == run_id, Log.attempt == attempt, Log.position <= start)
    )
    pieces: list[str] = []
    num_chars, end, at = 0, start, first or 0
    while num_chars < max_chars:
        rows = session.execute(
            select(Log.position, Log.text)
            .where(Log.run_id == run_id, Log.attempt == attempt, Log.position >= at)
            .order_by(Log.position)
            .limit(_PIECES_AT_ONCE)
        ).all()
        for at, text in rows:
            if num_chars < max_chars and (piece := text[max(start - at, 0) :]):
                pieces.append(piece)
                num_chars += len(piece)
                end = at + len(text)
        if len(rows) < _PIECES_AT_ONCE:
            break
        at += 1
    return LogText(attempt=attempt, position=start, next_position=end, text="".join(pieces))
