"""Explanations beside words, and the help page that they lead to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from server.pages.glossary import SECTIONS
from server.pages.terms import slug, term

TEMPLATES = Path(__file__).resolve().parents[3] / "web" / "templates"


def test_a_term_links_to_its_entry_and_is_described_by_its_text() -> None:
    made = term("Margin", "the margin", "cards")
    assert 'href="/help#margin" aria-describedby="term-margin-cards">the margin</a>' in made
    assert 'role="tooltip" id="term-margin-cards">The largest loss of quality' in made


def test_an_unknown_term_is_refused() -> None:
    with pytest.raises(KeyError):
        term("Nothing like it")


def test_anchors_of_the_help_page_are_unique() -> None:
    slugs = [slug(name) for _, entries in SECTIONS for name, _ in entries]
    assert len(slugs) == len(set(slugs)) > 30


def test_every_term_of_the_templates_has_an_entry_and_an_id_of_its_own() -> None:
    used: dict[str, list[str]] = {}
    for path in TEMPLATES.rglob("*.html"):
        for name, at in re.findall(r'term\("([^"]+)"(?:, "[^"]*"(?:, "([^"]*)")?)?\)', path.read_text("utf-8")):
            term(name)
            used.setdefault(f"{path.name}", []).append(f"{slug(name)}-{at}")
    assert sum(map(len, used.values())) > 8
    for page, anchors in used.items():
        assert len(anchors) == len(set(anchors)), page
