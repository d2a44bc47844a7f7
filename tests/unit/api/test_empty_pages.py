"""The first look: every page of an empty server says what will be here, and has what fills it."""

from __future__ import annotations

import re

import pytest
from sqlalchemy import delete
from team import Team, one_line

from server.db.tables import Workload

PAGES = {
    "/": "/experiments/new?workload=photo-denoiser",
    "/experiments": "/experiments/new",
    "/runs": "/experiments/new",
    "/trends": "/experiments/new",
    "/devices": "/experiments/new",
    "/batch-size": "ampboard analyse RUN --kind batch-size",
    "/compare": "/experiments/new",
    "/reports": "/reports/new",
    "/workers": "ampboard worker",
    "/team": "ampboard user add",
    "/notifications": "/experiments/new",
    "/workloads": "ampboard worker",
    "/experiments/new": "ampboard worker",
}


@pytest.mark.parametrize("path", sorted(PAGES))
def test_an_empty_page_says_what_fills_it(team: Team, path: str) -> None:
    with team.database.write() as session:
        session.execute(delete(Workload))
    shown = team.browser("admin").get(path)
    assert shown.status_code == 200
    text = one_line(shown.text)
    main = text[text.index("<main") : text.index("</main>")]
    assert PAGES[path] in main
    told = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", main))
    assert len(told.split()) > 15, told


@pytest.mark.parametrize("path", sorted(PAGES.keys() - {"/experiments/new"}))
def test_a_viewer_is_offered_nothing_that_is_refused(team: Team, path: str) -> None:
    shown = team.browser("viewer").get(path).text
    main = shown[shown.index("<main") : shown.index("</main>")]
    assert 'name="action"' not in main  # the lists' form is there, without any action
    for form in re.findall(r'<form[^>]*method="post"[^>]*action="([^"]+)"', main):
        assert form in ("/views", "/notifications/choices", "/experiments/act", "/runs/act"), form
    assert 'href="/experiments/new' not in main
    assert 'href="/reports/new' not in main
