"""Regions of pages: found in the markup, marked, and sent only where they differ."""

from __future__ import annotations

from starlette.requests import Request

from server.pages import regions

PAGE = (
    '<main id="main" tabindex="-1"><p class="facts" data-region="facts">a &lt;/p&gt; <b>b</b></p>'
    '<div data-region="outer"><div>1</div><section data-region="inner"><section>2</section></section><div>3</div></div>'
    '<span data-region="empty"></span></main>'
)
INNER = {
    "facts": "a &lt;/p&gt; <b>b</b>",
    "outer": '<div>1</div><section data-region="inner"><section>2</section></section><div>3</div>',
    "inner": "<section>2</section>",
    "empty": "",
}


def asking(**headers: str) -> Request:
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "method": "GET", "path": "/", "headers": pairs})


def test_regions_end_where_their_element_ends() -> None:
    assert regions.regions_of(PAGE) == INNER
    assert regions.regions_of("<main id='main'><div data-region=\"open\">never closed") == {"open": "never closed"}


def test_a_page_says_what_it_has_and_is_sent_only_what_differs() -> None:
    told = regions.marked(PAGE).split('data-marks="')[1].split('"')[0]
    assert {part.split("=")[0] for part in told.split(",")} == set(INNER)
    same = regions.changed(asking(ampboard_regions=told), PAGE)
    assert same.body == b'{"regions":{}}'
    later = PAGE.replace("<b>b</b>", "<b>c</b>")
    sent = regions.changed(asking(ampboard_regions=told), later).body
    assert b"<b>c</b>" in sent
    assert b"<section>" not in sent
    assert regions.changed(asking(), PAGE).body.count(b'"mark"') == len(INNER)


def test_marks_that_nobody_gave_are_no_marks() -> None:
    answer = regions.changed(asking(ampboard_regions="facts,=,outer=1=2," + "x" * 9000), PAGE)
    assert answer.body.count(b'"mark"') == len(INNER)
    assert answer.headers["cache-control"] == "no-store"


def test_only_its_own_media_type_asks_for_regions() -> None:
    assert regions.are_asked(asking(accept=regions.MEDIA_TYPE))
    assert not regions.are_asked(asking(accept="text/html"))
    assert not regions.are_asked(asking())
