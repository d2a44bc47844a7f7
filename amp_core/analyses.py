"""Which analyses there are besides training and benchmarking, and the options of each.

An analysis is a run of its own kind: it executes a workload under a recipe to answer one question, and its answer is an
`amp_core.events.Report`. Standard library and msgspec only: the server checks options before anything is queued.
"""

from __future__ import annotations

from typing import Any

import msgspec

from amp_core.errors import AnalysisError


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of an analysis's options; each has a default, and ``__post_init__`` checks the values."""


OPTIONS: dict[str, type[Options]] = {}
TITLES: dict[str, str] = {}


def parse_options(kind: str, given: dict[str, Any]) -> Options:
    """The options of an analysis. Raises `AnalysisError`, naming the value, the rule and the remedy."""
    if kind not in OPTIONS:
        raise AnalysisError(f"analysis kind={kind!r} is unknown: choose one of {', '.join(OPTIONS)}")
    try:
        return msgspec.convert(given, OPTIONS[kind])
    except msgspec.ValidationError as error:
        raise AnalysisError(f"options of analysis {kind!r}: {error}") from error
