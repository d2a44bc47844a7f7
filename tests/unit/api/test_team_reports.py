"""Reports: written, changed by two people, read, exported as a file that needs nothing else."""

from __future__ import annotations

import re
import struct

import numpy as np
import pytest
from team import Team

from server.db.tables import Attempt, Run, Segment, Series
from server.metrics.codec import Points, pack
from server.pages import report_text
from server.reports.curves import Curve, notes_of, svg_of
from server.reports.document import MAX_CHARTS, ChartBlock, chart_of, html_of, pieces_of
from server.reports.service import MAX_BODY

CHART = "```chart\nruns: 1\nseries: train/loss\ntitle: Fall\n```\n"


def run_with_points(team: Team) -> int:
    """A run that wrote a loss with a NaN in it."""
    body = {"workload": "digits-cnn", "recipes": ["fp32", "bf16"], "seeds": 1}
    experiment = team.client("submitter").post("/api/v1/experiments", json=body).json()["id"]
    items = team.client("viewer").get("/api/v1/runs", params={"experiment_id": experiment, "kind": "train"}).json()
    run_id = int(min(item["id"] for item in items["items"]))
    values = np.array([2.0, 1.0, np.nan, 0.5])
    points = Points(steps=np.arange(1, 5), values=values, times=np.arange(4.0))
    with team.database.write() as session:
        run = session.get_one(Run, run_id)
        run.state, run.attempt, run.step = "completed", 1, 4
        session.add(Attempt(run_id=run_id, number=1, worker_name="w", started_at=run.created_at))
        session.add(Segment(run_id=run_id, attempt=1, sequence=1, num_points=4, min_step=1, max_step=4,
                            payload=pack({"train/loss": points})))  # fmt: skip
        session.add(
            Series(run_id=run_id, attempt=1, name="train/loss", num_points=4, first_step=1, last_step=4,
                   last_value=struct.pack("<d", 0.5), finite_last=0.5, finite_min=0.5, finite_max=2.0, finite_sum=3.5,
                   num_nan=1, first_non_finite_step=3)
        )  # fmt: skip
    return run_id


def test_a_report_is_written_and_each_version_kept(team: Team) -> None:
    client = team.client("submitter")
    made = client.post("/api/v1/reports", json={"title": "bf16", "body": "one", "project": "vision"})
    assert made.status_code == 201, made.text
    path = f"/api/v1/reports/{made.json()['id']}"
    changed = client.put(path, json={"title": "bf16 holds", "body": "two", "version": 1}).json()
    assert (changed["version"], changed["body"], changed["project"]) == (2, "two", "vision")
    assert client.get(path, params={"version": 1}).json()["body"] == "one"
    assert [item["version"] for item in changed["versions"]] == [2, 1]
    assert client.get(path, params={"version": 9}).status_code == 404
    listed = team.client("viewer").get("/api/v1/reports", params={"project": "vision"}).json()["items"]
    assert [(item["title"], item["editor"]) for item in listed] == [("bf16 holds", "submitter")]


def test_nobody_writes_over_what_they_have_not_seen(team: Team) -> None:
    client = team.client("submitter")
    report = client.post("/api/v1/reports", json={"title": "t", "body": "first"}).json()["id"]
    client.put(f"/api/v1/reports/{report}", json={"title": "t", "body": "theirs", "version": 1})
    late = client.put(f"/api/v1/reports/{report}", json={"title": "t", "body": "mine", "version": 1})
    assert late.status_code == 409
    browser = team.browser("admin")
    shown = browser.post(f"/reports/{report}", data={"title": "t", "body": "mine", "version": 1})
    assert shown.status_code == 409
    assert "mine</textarea>" in shown.text
    assert "theirs" in shown.text
    assert browser.post(f"/reports/{report}", data={"title": "t", "body": "both", "version": 2}).status_code == 303


def test_a_preview_keeps_the_other_text_and_the_warning(team: Team) -> None:
    client = team.client("submitter")
    report = client.post("/api/v1/reports", json={"title": "t", "body": "first"}).json()["id"]
    client.put(f"/api/v1/reports/{report}", json={"title": "t", "body": "theirs", "version": 1})
    browser = team.browser("admin")
    shown = browser.post(f"/reports/{report}", data={"title": "t", "body": "mine", "version": 1}).text
    fields = dict(re.findall(r'type="hidden" name="(\w+)"\s+value="(\d+)"', shown))
    assert fields == {"over": "2", "version": "2", "report": str(report)}
    for _ in range(2):  # a preview of a preview
        shown = browser.post("/reports/preview", data={"title": "t", "body": "mine", **fields}).text
        assert "submitter wrote version 2 while you were writing" in shown
        assert '<pre class="wrap small" tabindex="0">theirs</pre>' in shown
        assert dict(re.findall(r'type="hidden" name="(\w+)"\s+value="(\d+)"', shown)) == fields
    client.put(f"/api/v1/reports/{report}", json={"title": "t", "body": "theirs again", "version": 2})
    late = browser.post(f"/reports/{report}", data={"title": "t", "body": "mine", **fields})
    assert late.status_code == 409
    assert "theirs again" in late.text


def test_a_preview_needs_no_title_and_is_what_the_page_shows_first(team: Team) -> None:
    browser = team.browser("submitter")
    assert 'formaction="/reports/preview#preview" formnovalidate' in browser.get("/reports/new").text
    shown = browser.post("/reports/preview", data={"title": "", "body": "a text"})
    assert shown.status_code == 200
    assert '<section id="preview"' in shown.text
    assert "was not saved" not in shown.text


def test_a_report_without_a_title_comes_back_in_the_editor(team: Team) -> None:
    shown = team.browser("submitter").post("/reports", data={"title": " ", "body": "long text"})
    assert shown.status_code == 422
    assert "long text</textarea>" in shown.text


def test_a_text_that_is_too_long_is_not_rendered(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = team.browser("submitter")
    lines = "ab\r\n" * (MAX_BODY // 3)  # as a form sends lines; kept, each has three characters
    assert browser.post("/reports/preview", data={"title": "t", "body": lines}).status_code == 200

    def refuse(session: object, body: str) -> None:
        raise AssertionError("it was rendered")

    monkeypatch.setattr(report_text, "shown", refuse)
    answer = browser.post("/reports/preview", data={"title": "t", "body": "x" * (MAX_BODY + 1)})
    assert answer.status_code == 422
    assert f"it has {MAX_BODY + 1} characters" in answer.text
    assert f"{'x' * (MAX_BODY + 1)}</textarea>" in answer.text  # nothing of it is lost


@pytest.mark.parametrize("letter", ["字", "\N{EARTH GLOBE EUROPE-AFRICA}", "a"])
def test_a_text_in_any_script_is_kept_up_to_its_limit(team: Team, letter: str) -> None:
    browser, body = team.browser("submitter"), letter * MAX_BODY
    made = browser.post("/reports", data={"title": "t", "body": body})
    assert made.status_code == 303, made.text[-2000:]
    path = made.headers["location"]
    assert browser.post(path, data={"title": "t", "body": body, "version": 1}).status_code == 303
    kept = team.client("viewer").get(f"/api/v1{path}").json()
    assert (kept["version"], kept["body"] == body) == (2, True)
    assert browser.post("/reports/preview", data={"title": "t", "body": letter * (MAX_BODY + 1)}).status_code == 422


def test_authors_and_admins_delete(team: Team) -> None:
    report = team.client("admin").post("/api/v1/reports", json={"title": "t"}).json()["id"]
    assert team.client("submitter").delete(f"/api/v1/reports/{report}").status_code == 403
    assert team.client("viewer").delete(f"/api/v1/reports/{report}").status_code == 403
    assert team.client("admin").delete(f"/api/v1/reports/{report}").status_code == 204
    assert team.client("viewer").get(f"/api/v1/reports/{report}").status_code == 404


def test_hostile_text_stays_text(team: Team) -> None:
    body = (
        "<script>alert(1)</script>\n\n[x](javascript:alert(1)) <img src=x onerror=alert(1)> ![pic](http://evil/x.png)"
    )
    report = team.client("submitter").post("/api/v1/reports", json={"title": "<b>t</b>", "body": body}).json()["id"]
    for path in (f"/reports/{report}", f"/reports/{report}/export.html", f"/reports/{report}/edit"):
        text = team.browser("submitter").get(path).text
        assert "<script>alert" not in text
        assert "<img src=x" not in text
        assert "<b>t</b>" not in text
        assert 'href="javascript' not in text
    assert 'src="http://evil' not in team.browser("viewer").get(f"/reports/{report}").text


@pytest.mark.parametrize(
    "address",
    ["javascript:alert(1)", "JaVaScRiPt:alert(1)", "ms-msdt:/id", "blob:x", "data:image/png;base64,aGk=", "x:y",
     "file:///etc", "//evil.example", "///evil.example", "http:evil", "https:///x", "mailto:", "&#9;//evil.example"],
)  # fmt: skip
def test_a_link_elsewhere_than_to_the_web_or_mail_stays_text(address: str) -> None:
    assert "<a" not in html_of(f"[x]({address}) and <{address}>\n\n[y][1]\n\n[1]: {address}\n")


@pytest.mark.parametrize(
    "address", ["/runs/3", "runs?q=a:b", "#notes", "?tab=1", "/%5Cevil", "/runs/3#a:b", "mailto:a@b.example", "../help"]
)
def test_a_link_to_this_site_or_by_mail_is_one(address: str) -> None:
    assert html_of(f"[x]({address})") == f'<p><a href="{address}">x</a></p>\n'


def test_a_link_to_another_site_tells_it_nothing() -> None:
    for address in ("https://a.example/b", "HTTP://a.example"):
        shown = html_of(f"[x]({address}) <https://c.example>")
        assert shown.count('rel="noopener noreferrer"') == 2, shown


def test_the_export_needs_nothing_beside_itself(team: Team) -> None:
    run_id = run_with_points(team)
    body = f"# Heading\n\n{CHART.replace('runs: 1', f'runs: {run_id}')}\nafter"
    report = team.client("submitter").post("/api/v1/reports", json={"title": "t", "body": body}).json()["id"]
    answer = team.browser("viewer").get(f"/reports/{report}/export.html")
    assert answer.status_code == 200
    assert "sandbox" in answer.headers["content-security-policy"]
    text = answer.text
    assert "<script" not in text
    assert not re.search(r'(?:src|href)="(?!#)', text), "no request"
    assert "<svg" in text
    assert "NaN since step 3" in text
    assert len(answer.content) < 60_000
    shown = team.browser("viewer").get(f"/reports/{report}").text
    assert 'data-chart="block-1"' in shown


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("series: a", "it names no runs"),
        ("runs: 1", "it names no series"),
        ("runs: 1, x\nseries: a", "'x' is no number"),
        ("colour: red", "'colour: red' is no line of a chart"),
    ],
)
def test_a_block_that_cannot_be_drawn_says_why(text: str, fault: str) -> None:
    assert fault in chart_of(text).fault


def test_a_chart_of_missing_runs_says_so_on_the_page(team: Team) -> None:
    body = CHART.replace("runs: 1", "runs: 4711")
    report = team.client("submitter").post("/api/v1/reports", json={"title": "t", "body": body}).json()["id"]
    for path in (f"/reports/{report}", f"/reports/{report}/export.html"):
        assert "run 4711 is not here" in team.browser("viewer").get(path).text


def test_a_chart_draws_the_runs_that_are_here_and_names_the_others(team: Team) -> None:
    run_id = run_with_points(team)
    body = CHART.replace("runs: 1", f"runs: 4711, {run_id}, 4712\nexperiment: 99")
    report = team.client("submitter").post("/api/v1/reports", json={"title": "t", "body": body}).json()["id"]
    missing = "eft out: run 4711, run 4712 and experiment 99 are not here"
    shown = team.browser("viewer").get(f"/reports/{report}").text
    assert 'data-chart="block-0"' in shown
    assert f"L{missing}." in shown
    assert "cannot be drawn" not in shown
    still = team.browser("viewer").get(f"/reports/{report}/export.html").text
    assert "<svg" in still
    assert f"l{missing}" in still


def test_charts_stand_where_they_were_written_and_their_number_is_bounded() -> None:
    pieces = pieces_of(f"before\n\n{CHART}\nafter")
    assert [type(piece) for piece in pieces] == [str, ChartBlock, str]
    assert pieces[1] == ChartBlock(runs=(1,), series="train/loss", title="Fall")
    many = [piece for piece in pieces_of(CHART * (MAX_CHARTS + 1)) if isinstance(piece, ChartBlock)]
    assert [bool(piece.fault) for piece in many] == [False] * MAX_CHARTS + [True]


def test_a_still_curve_marks_what_is_not_finite() -> None:
    curve = Curve(label="<a>", colour="#0072b2", dash="none", steps=np.arange(5),
                  values=np.array([1.0, np.inf, np.nan, -1.0, 2.0]))  # fmt: skip
    drawn = svg_of([curve], "loss")
    assert "▲" in drawn
    assert "✕" in drawn
    assert "<a>" not in drawn
    assert drawn.count("M") >= 2, "the line is interrupted"
    assert notes_of([curve], log=True)[-1].startswith("1 values of zero or below")
    assert svg_of([], "nothing") == ""
