"""The base of every event. Standard library and msgspec only."""

from __future__ import annotations

import msgspec


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """Base of every event; the tag is the snake-case name under which it is stored."""
