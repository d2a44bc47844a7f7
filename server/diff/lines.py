"""Two versions of a source text, line by line. Pure."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

CONTEXT = 3
MAX_LINES = 20_000  # of a version: comparing takes up to the square of it


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a difference. ``mark``: ``-`` only in the old text, ``+`` only in the new one, a space in both.

    ``old`` and ``new`` are line numbers from 1. A line of mark ``@`` stands for equal lines left out.
    """

    mark: str
    old: int | None
    new: int | None
    text: str


def differences(old: str, new: str) -> list[Line]:
    """The lines that differ with three equal ones around them, by `difflib.SequenceMatcher`; empty for equal texts.

    Raises `ValueError` for texts of more than `MAX_LINES` lines.
    """
    before, after = old.splitlines(), new.splitlines()
    if max(len(before), len(after)) > MAX_LINES:
        raise ValueError(f"a text of {max(len(before), len(after))} lines is not compared: at most {MAX_LINES} are")
    found: list[Line] = []
    previous_end = 0
    for group in difflib.SequenceMatcher(None, before, after).get_grouped_opcodes(CONTEXT):
        start = group[0][1]
        if start > previous_end:
            found.append(Line(mark="@", old=None, new=None, text=f"{start - previous_end} equal lines"))
        previous_end = group[-1][2]
        for kind, i1, i2, j1, j2 in group:
            if kind == "equal":
                pairs = zip(range(i1, i2), range(j1, j2), strict=True)
                found += [Line(mark=" ", old=i + 1, new=j + 1, text=before[i]) for i, j in pairs]
                continue
            found += [Line(mark="-", old=i + 1, new=None, text=before[i]) for i in range(i1, i2)]
            found += [Line(mark="+", old=None, new=j + 1, text=after[j]) for j in range(j1, j2)]
    return found
