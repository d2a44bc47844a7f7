"""The comparison over REST, and its report as Markdown and self-contained HTML."""

from __future__ import annotations

import base64
import hashlib
import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest
from comparison_rows import make_plan, play, submit
from markdown_it import MarkdownIt
from team import Team

from server.comparisons.report import About, html, interval_plot
from server.comparisons.schemas import ComparisonOut
from server.comparisons.service import judge_ended
from server.db.engine import Database
from server.db.tables import Experiment

ABOUT = About(experiment_id=1, name="n", workload="w", owner="o", created_at=datetime(2026, 1, 1, tzinfo=UTC),
              judged_at=None)  # fmt: skip
HOSTILE = 'Café "<script>alert(1)</script>" | `x` **b** [l](http://e.example) # <img src=x onerror=y>'


@pytest.fixture
def team(database: Database, tmp_path: Path) -> Team:
    return Team(database, tmp_path)


def judged(team: Team, name: str = "Demo") -> int:
    experiment_id = submit(team.database, make_plan(), name)
    play(team.database, experiment_id)
    judge_ended(team.database)
    return experiment_id


def test_the_comparison_has_the_published_shape(team: Team) -> None:
    experiment_id = judged(team)
    answer = team.client("viewer").get(f"/api/v1/experiments/{experiment_id}/comparison")
    assert answer.status_code == 200
    comparison = ComparisonOut.model_validate(answer.json())
    assert comparison.model_dump(mode="json") == answer.json()
    assert comparison.state == "judged"
    assert 1 <= len(comparison.statements) <= 3
    assert "gradients of net.2 became zero" in comparison.statements[0]


def test_a_comparison_that_was_stored_before_it_had_all_its_fields_is_shown(team: Team) -> None:
    experiment_id = judged(team)
    with team.database.write() as session:
        experiment = session.get_one(Experiment, experiment_id)
        assert experiment.comparison is not None
        experiment.comparison = {key: value for key, value in experiment.comparison.items() if key != "segment"}
    for path in ("/experiments/{}", "/api/v1/experiments/{}/comparison", "/api/v1/experiments/{}/report.html"):
        assert team.client("viewer").get(path.format(experiment_id)).status_code == 200, path


@pytest.mark.parametrize("path", ["comparison", "report.md", "report.html"])
def test_strangers_read_nothing_and_unknown_experiments_are_not_found(team: Team, path: str) -> None:
    experiment_id = judged(team)
    assert team.client().get(f"/api/v1/experiments/{experiment_id}/{path}").status_code == 401
    assert team.client("viewer").get(f"/api/v1/experiments/999/{path}").status_code == 404


def test_the_follow_up_submissions_are_accepted(team: Team) -> None:
    """What "run the cure" sends is a valid submission of this server."""
    experiment_id = judged(team)
    team.add_workload("photo-denoiser", parameters=[])
    recipes = team.client("viewer").get(f"/api/v1/experiments/{experiment_id}/comparison").json()["recipes"]
    step = next(one["next_step"] for one in recipes if one["recipe"] == "16-mixed, no scaler")
    assert step["action"] == "run_cure"
    made = team.client("submitter").post("/api/v1/experiments", json=step["submission"])
    assert made.status_code == 201, made.text
    body = made.json()
    assert [one["name"] for one in body["recipes"]] == ["32-true", "16-mixed"]
    assert body["primary"]["margin"] == 0.25
    assert body["seeds"] == [0, 1, 2, 3, 4]


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_the_html_report_needs_nothing_else_and_escapes_names(team: Team) -> None:
    experiment_id = judged(team, HOSTILE)
    answer = team.client("viewer").get(f"/api/v1/experiments/{experiment_id}/report.html")
    assert answer.headers["content-type"].startswith("text/html")
    page = _Page()
    page.feed(answer.text)
    names = {tag for tag, _ in page.tags}
    assert names.isdisjoint({"script", "img", "link", "iframe", "a"})
    assert all("src" not in attributes and "href" not in attributes for _, attributes in page.tags)
    assert all(not key.startswith("on") and key != "style" for _, attributes in page.tags for key in attributes)
    assert "Café &#34;&lt;script&gt;" in answer.text
    style = re.search(r"<style>(.*?)</style>", answer.text, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style.group(1).encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in answer.headers["content-security-policy"]
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_the_picture_of_the_report_has_the_worse_side_where_the_scorecard_has_it(team: Team) -> None:
    experiment_id = judged(team)
    client = team.client("viewer")
    comparison = client.get(f"/api/v1/experiments/{experiment_id}/comparison").json()
    plot = interval_plot(comparison)
    assert plot is not None
    assert plot.margin < plot.zero
    harms = {one["recipe"]: one["quality"] for one in comparison["recipes"] if one["quality"]}
    for bar in plot.bars:
        assert bar.left <= bar.middle <= bar.right
        assert (bar.left < plot.margin) == (harms[bar.recipe]["interval"][1] > comparison["primary"]["margin"])
    told = client.get(f"/api/v1/experiments/{experiment_id}/report.html").text
    assert "left is worse, which means lower." in told
    loss = {**comparison, "primary": {**comparison["primary"], "higher_is_better": False}}
    assert "left is worse, which means higher." in html(ABOUT, loss)


def test_the_markdown_report_escapes_names_and_keeps_its_tables(team: Team) -> None:
    experiment_id = judged(team, HOSTILE)
    answer = team.client("viewer").get(f"/api/v1/experiments/{experiment_id}/report.md?download=true")
    assert answer.headers["content-type"].startswith("text/markdown")
    assert f"ampboard-experiment-{experiment_id}.md" in answer.headers["content-disposition"]
    rendered = MarkdownIt("commonmark", {"html": True}).enable("table").render(answer.text)
    page = _Page()
    page.feed(rendered)
    names = [tag for tag, _ in page.tags]
    assert not {"script", "img", "a", "strong", "code"} & set(names)
    assert names.count("table") == 3  # the verdicts, and the pairs of two recipes
    assert names.count("h1") == 1
    assert "UNSAFE" in rendered
    assert "<td>−0.02 dB</td>" in rendered


def test_a_report_can_be_read_before_the_verdict(team: Team) -> None:
    experiment_id = submit(team.database, make_plan())
    for kind in ("md", "html"):
        answer = team.client("viewer").get(f"/api/v1/experiments/{experiment_id}/report.{kind}")
        assert answer.status_code == 200
        assert "no verdict yet" in answer.text
    assert team.client("viewer").get(f"/api/v1/experiments/{experiment_id}/report.pdf").status_code == 422
