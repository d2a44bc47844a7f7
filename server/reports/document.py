"""A report's Markdown as pieces: HTML, and blocks that ask for a chart. Pure.

A chart is a fenced block named ``chart`` with lines of name and value:

    ```chart
    runs: 1, 2, 3
    series: train/loss
    title: How the loss fell
    ```

``experiment: 4`` stands for all its runs; ``log: yes`` draws a logarithmic axis. HTML in the text is shown, not obeyed,
and links lead to http, https, mailto or this site only; any other stays text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from markdown_it import MarkdownIt

MAX_CHARTS = 20
FIELDS = ("runs", "experiment", "series", "title", "log")
LINKED = frozenset({"http", "https", "mailto"})


class _Markdown(MarkdownIt):
    """Markdown whose links lead to `LINKED` schemes with a host, or to a place of this site."""

    def validateLink(self, url: str) -> bool:  # noqa: N802 - the library's name
        """Whether ``url`` becomes a link; the library has percent-encoded what an address cannot have."""
        if re.search(r"[\\\x00-\x20\x7f]", url):
            return False
        try:
            parts = urlsplit(url)
        except ValueError:
            return False
        if parts.scheme == "mailto":
            return bool(parts.path)
        return bool(parts.netloc) if parts.scheme in LINKED else not parts.scheme and not url.startswith("//")


_markdown = _Markdown("commonmark", {"html": False, "linkify": False}).enable("table").enable("strikethrough")


@dataclass(frozen=True, kw_only=True)
class ChartBlock:
    """What one block asks for; ``fault`` says why it cannot be drawn."""

    runs: tuple[int, ...] = ()
    experiments: tuple[int, ...] = ()
    series: str = ""
    title: str = ""
    log: bool = False
    fault: str = ""


def html_of(text: str) -> str:
    """A short text as HTML, by the rules of a report; chart blocks stay code."""
    return _html(_markdown.parse(text))


def pieces_of(body: str) -> list[str | ChartBlock]:
    """The document in order: rendered HTML between its charts. After `MAX_CHARTS` charts a block says so instead."""
    pieces: list[str | ChartBlock] = []
    pending: list[Any] = []
    num_charts = 0
    for token in _markdown.parse(body):
        if token.type == "fence" and token.level == 0 and token.info.strip() == "chart":
            pieces.append(_html(pending))
            pending = []
            num_charts += 1
            fault = f"a report has at most {MAX_CHARTS} charts" if num_charts > MAX_CHARTS else ""
            pieces.append(ChartBlock(fault=fault) if fault else chart_of(token.content))
        else:
            pending.append(token)
    pieces.append(_html(pending))
    return [piece for piece in pieces if piece != ""]


def _html(tokens: list[Any]) -> str:
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):  # the page's own title is the only h1
            token.tag = f"h{max(2, int(token.tag[1]))}"
        for child in token.children or []:
            if child.type == "image":  # nothing is fetched from elsewhere: an image is a link
                child.type, child.tag = "text", ""
                child.content = f"[image: {child.content}]"
            elif child.type == "link_open" and urlsplit(str(child.attrGet("href"))).scheme in ("http", "https"):
                child.attrSet("rel", "noopener noreferrer")
    return str(_markdown.renderer.render(tokens, _markdown.options, {}))


def chart_of(text: str) -> ChartBlock:
    """The block in ``text``, or one with the fault that keeps it from being drawn."""
    given: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if not line.strip():
            continue
        if not colon or name.strip() not in FIELDS:
            return ChartBlock(fault=f"{line.strip()[:60]!r} is no line of a chart: {', '.join(FIELDS)} are known")
        given[name.strip()] = value.strip()
    ids: dict[str, tuple[int, ...]] = {}
    for name in ("runs", "experiment"):
        words = given.get(name, "").replace(",", " ").split()
        wrong = [word for word in words if not (word.isascii() and word.isdigit() and 0 < int(word) < 2**63)]
        if wrong:
            return ChartBlock(fault=f"{name}: {wrong[0][:30]!r} is no number")
        ids[name] = tuple(dict.fromkeys(int(word) for word in words))
    if not ids["runs"] and not ids["experiment"]:
        return ChartBlock(fault="it names no runs: write runs: 1, 2 or experiment: 3")
    if not given.get("series"):
        return ChartBlock(fault="it names no series: write series: train/loss")
    return ChartBlock(
        runs=ids["runs"],
        experiments=ids["experiment"],
        series=given["series"][:200],
        title=given.get("title", "")[:200] or given["series"][:200],
        log=given.get("log", "").lower() in ("yes", "true", "1"),
    )
