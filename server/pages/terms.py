"""Terms explained where they stand: a link to the help page with the explanation as a tooltip, without any script."""

from __future__ import annotations

from functools import cache

from markupsafe import Markup

from server.pages.glossary import SECTIONS


def slug(term: str) -> str:
    """The anchor of a term on the help page."""
    return term.lower().replace(" ", "-").replace("/", "-")


@cache
def _entries() -> dict[str, tuple[str, str]]:
    return {slug(term): (term, text) for _, entries in SECTIONS for term, text in entries}


def term(name: str, words: str | None = None, at: str = "") -> Markup:
    """``words`` as a link to the entry ``name``, its text shown on hover and focus; ``at`` keeps ids of a page apart.

    Raises:
        KeyError: the help page has no such entry.
    """
    key = slug(name)
    title, text = _entries()[key]
    anchor = f"term-{key}{'-' + at if at else ''}"
    return Markup(
        '<span class="term"><a href="/help#{}" aria-describedby="{}">{}</a>'
        '<span class="tip" role="tooltip" id="{}">{}</span></span>'
    ).format(key, anchor, words or title, anchor, text)
