"""A report's Markdown as pieces: HTML, and blocks that ask for a chart. Pure.

A chart is a fenced block named ``chart`` with lines of name and value:

    ```chart
    runs: 1, 2, 3
    series: train/loss
    title: How the loss fell
    ```

``experiment: 4`` stands for all its runs; ``log: yes`` draws a logarithmic axis. HTML in the text is shown, not obeyed,
and links lead to http, https, mailto or this site only (markdown-it's own check).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from markdown_it import MarkdownIt

MAX_CHARTS = 20
FIELDS = ("runs", "experiment", "series", "title", "log")
_markdown = MarkdownIt("commonmark", {"html": False, "linkify": False}).enable("table").enable("strikethrough")


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
