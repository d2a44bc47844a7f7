"""What a bulk action without scripts did, as the list says it on the next page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from server.bulk.schemas import MAX_IDS
from server.pages.formats import duration

_DONE = {
    "cancel": "cancelled", "retry": "queued again", "tag": "tagged", "untag": "without that tag now",
    "archive": "archived", "unarchive": "back in the lists", "delete": "deleted", "restore": "back",
}  # fmt: skip
_UNDO = {"delete": "restore", "archive": "unarchive", "unarchive": "archive"}


@dataclass(frozen=True, kw_only=True)
class Notice:
    """``text`` says what was done; ``undo`` is the action that takes it back, for ``ids``; empty when none does."""

    text: str
    good: bool
    undo: str
    ids: tuple[int, ...]


def notice_of(params: Any, undo_s: float) -> Notice | None:
    """The notice that an address asks for. Its words are ours: nothing of the address is shown but numbers."""
    action = params.get("did", "")
    if action not in _DONE:
        return None
    ids = _numbers(params.get("ids", ""))
    refused = _numbers(params.get("refused", ""))
    parts = [f"{len(ids)} {_DONE[action]}."] if ids else []
    if refused:
        listed = ", ".join(map(str, refused[:8])) + (" …" if len(refused) > 8 else "")
        parts.append(f"{len(refused)} left as they were ({listed}): another's, or not in a state for it.")
    undo = _UNDO.get(action, "") if ids else ""
    if undo == "restore":
        parts.append(f"They can be restored for {duration(undo_s)}.")
    return Notice(text=" ".join(parts) or "Nothing was selected.", good=bool(ids), undo=undo, ids=tuple(ids))


def _numbers(text: str) -> list[int]:
    parts = text.split(",")[:MAX_IDS]
    return [int(part) for part in parts if part.isascii() and part.isdecimal() and len(part) < 19]
