"""The table of experiments in groups that overlap, and its metric columns, beside what REST says."""

from __future__ import annotations

import html
import math
import re
import time
from datetime import UTC, datetime

import numpy as np
import pytest
from sqlalchemy import select
from team import Team

from amp_core.events import Column, Frame, Segment
from server.db.tables import Experiment, Run
from server.metrics.write import store_frames
from server.pages import table

VALUES = {"32-true": [0.90, 0.94], "bf16-mixed": [0.80, math.nan]}


@pytest.fixture
def experiments(team: Team) -> list[int]:
    """Three experiments with overlapping tags; the first one trained and judged."""
    client = team.client("submitter")
    made = []
    for number, tags in enumerate((["paper", "odd one"], ["paper"], [])):
        body = {"workload": "digits-cnn", "name": f"E{number}", "seeds": 2, "recipes": ["fp32", "bf16"], "tags": tags,
                "control": False}  # fmt: skip
        made.append(client.post("/api/v1/experiments", json=body).json()["id"])
    with team.database.write() as session:
        query = select(Run).where(Run.experiment_id == made[0], Run.kind == "train").order_by(Run.seed)
        for run in session.scalars(query).all():
            run.state, run.attempt = "running", 1
            session.flush()
            value = VALUES[run.recipe_name][run.seed % 2]
            step, figure, moment = np.array([10], "<i8"), np.array([value], "<f8"), np.array([time.time()], "<f8")
            points = Column(name="eval/accuracy", steps=step.tobytes(), values=figure.tobytes(), times=moment.tobytes())
            store_frames(session, run.id, 1, [Frame(sequence=1, at=0.0, event=Segment(columns=[points]))])
        judged = session.get_one(Experiment, made[0])
        judged.judged_at = datetime.now(UTC)
        judged.comparison = {"recipes": [{"recipe": "bf16-mixed", "verdict": "SAFE"}]}
    return made


def _text(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


def _group(page: str, title: str) -> str:
    found = re.search(rf'<tbody[^>]*data-group="{re.escape(title)}".*?</tbody>', page, re.DOTALL)
    assert found is not None, title
    return _text(found.group())


def test_tags_and_recipes_group_what_they_share(team: Team, experiments: list[int]) -> None:
    page = team.browser("viewer").get("/experiments?group=tag").text
    assert "2 experiments" in _group(page, "paper")
    assert "SAFE in 1" in _group(page, "paper")
    assert "1 experiment " in _group(page, "odd one")
    assert "E2" in _group(page, "without a tag")
    assert len(re.findall(rf'data-row="{experiments[0]}"', page)) == 2
    assert len(re.findall(r' id="experiment-[^"]+"', page)) == len(set(re.findall(r' id="experiment-[^"]+"', page)))
    page = team.browser("viewer").get("/experiments?group=recipe").text
    assert "3 experiments" in _group(page, "bf16-mixed")
    assert "SAFE in 1" in _group(page, "bf16-mixed")
    assert "SAFE in" not in _group(page, "32-true")  # no verdict is given to the baseline


def test_a_filter_holds_in_groups_and_its_faults_are_told(team: Team, experiments: list[int]) -> None:
    page = team.browser("viewer").get("/experiments?group=tag&q=E1").text
    assert "1 experiment " in _group(page, "paper")
    assert 'data-group="odd one"' not in page
    assert "The search was not understood" in team.browser("viewer").get("/experiments?group=recipe&q=a:b:c>").text


@pytest.mark.parametrize("by", ["workload", "owner", "project", "state", "tag", "recipe"])
def test_every_group_shows_the_newest_first_over_all_its_pages(
    team: Team, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    made = [
        team.client("submitter")
        .post("/api/v1/experiments", json={"workload": "digits-cnn", "seeds": 1, "recipes": ["fp32", "bf16"]})
        .json()["id"]
        for _ in range(5)
    ]
    with team.database.write() as session:  # the first was imported last: its number is no age
        session.get_one(Experiment, made[-1]).created_at = datetime(2020, 1, 1, tzinfo=UTC)
    monkeypatch.setattr(table, "PAGE_SIZE", 2)
    shown: list[int] = []
    address = f"/experiments?group={by}"
    while address and len(shown) < 20:
        page = team.browser("viewer").get(address).text
        shown += map(int, re.findall(r'data-row="(\d+)"', page))
        following = re.search(r'href="([^"]*cursor=[^"]*)"', page)
        address = html.unescape(following[1]) if following else ""
    assert shown[:5] == [*made[-2::-1], made[-1]]
    assert len(shown) == (10 if by == "recipe" else 5)  # of two recipes


def test_a_group_that_there_is_not_is_refused(team: Team) -> None:
    answer = team.browser("viewer").get("/experiments?group=nonsense")
    assert answer.status_code == 422
    assert "experiments have no such groups" in answer.text


def test_a_long_group_leads_to_its_list(team: Team) -> None:
    for number in range(21):
        body = {"workload": "digits-cnn", "name": f"N{number}", "seeds": 1, "tags": ["many of them"]}
        assert team.client("submitter").post("/api/v1/experiments", json=body).status_code == 201
    page = team.browser("viewer").get("/experiments?group=tag").text
    link = re.search(r'href="([^"]+)" data-swap>All 21 experiments as a list', page)
    assert link is not None
    listed = team.browser("viewer").get(link.group(1).replace("&amp;", "&")).text
    assert len(re.findall(r"data-row=", listed)) == 21


def test_metric_columns_show_each_recipe(team: Team, experiments: list[int]) -> None:
    page = team.browser("viewer").get("/experiments?cols=workload,eval/accuracy").text
    row = re.search(rf'<tr data-row="{experiments[0]}".*?</tr>', page, re.DOTALL)
    assert row is not None
    text = _text(row.group())
    assert "32-true 0.9200 ± 0.028" in text  # the sample deviation of 0.90 and 0.94
    assert "bf16-mixed" in text
    assert "1 not finite" in text
    other = re.search(rf'<tr data-row="{experiments[1]}".*?</tr>', page, re.DOTALL)
    assert other is not None
    assert "–" in _text(other.group())
    assert 'value="eval/accuracy" checked' in page
    for view in ("group=workload", "group=tag", "group=recipe"):
        assert "1 not finite" in team.browser("viewer").get(f"/experiments?cols=eval/accuracy&{view}").text
