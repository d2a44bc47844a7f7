"""Each kind of chart shows what REST answers: lines, means, bands, lanes of events, tables, drawings of the server."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import SeededServer
from dashboard import complaints_of
from playwright.sync_api import Page, expect
from sqlalchemy import delete, select
from views import open_tall, page_charts, traces

from server.db.tables import Event, Run

pytestmark = pytest.mark.browser

Curve = dict[int, float | None]  # value by step, None where it is not finite
BATCHES = {8: 110.0, 16: 205.0, 32: 370.0, 64: 601.5, 128: None}  # samples/s, None: did not fit


@pytest.fixture
def page(seeded_server: SeededServer) -> Iterator[Page]:
    with seeded_server.open() as context:
        opened = context.new_page()
        complaints = complaints_of(opened)
        yield opened
        assert complaints == []


def told_curve(page: Page, run: int, series: str, most: int) -> tuple[str, Curve]:
    """A series as REST gives it, to the seven digits that charts get."""
    answer = page.request.get(f"/api/v1/runs/{run}/series/{series}?max_points={most}").json()
    values = [None if isinstance(value, str) else float(f"{value:.7g}") for value in answer["values"]]
    return answer["kind"], dict(zip(answer["steps"], values, strict=True))


def drawn_curve(trace: dict[str, Any]) -> Curve:
    return {step: y for step, y in zip(trace["customdata"], trace["y"], strict=True) if step is not None}


def max_points(page: Page) -> int:
    return int(page.evaluate("JSON.parse(document.getElementById('page-data').textContent).max_points"))


def a_run(seeded_server: SeededServer, experiment: int, recipe: str) -> int:
    """The first training of a recipe in the history's experiment of that number."""
    with seeded_server.database.read() as session:
        query = select(Run.id).where(Run.experiment_id == experiment, Run.recipe_name == recipe, Run.kind == "train")
        return session.scalars(query.order_by(Run.id)).first() or 0


@pytest.mark.parametrize(("experiment", "recipe"), [(2, "16-mixed"), (4, "32-true"), (6, "bf16-mixed")])
def test_lines_of_a_run(seeded_server: SeededServer, page: Page, experiment: int, recipe: str) -> None:
    """With NaN and infinities, with spikes, and of 100,000 steps."""
    run = a_run(seeded_server, experiment, recipe)
    open_tall(page, f"/runs/{run}")
    compared = 0
    for chart in page_charts(page):
        expect(page.locator(f"[data-chart='{chart['id']}'] .main-svg").first).to_be_attached()
        _, told = told_curve(page, run, chart["series"], max_points(page))
        lines = [trace for trace in traces(page, chart["id"]) if trace["yaxis"] == "y"]
        assert drawn_curve(lines[0]) == told, chart["id"]
        compared += len(told)
    assert compared > 700


def test_the_lane_has_every_skipped_step(seeded_server: SeededServer, page: Page) -> None:
    run = a_run(seeded_server, 2, "16-mixed")
    open_tall(page, f"/runs/{run}")
    events = page.request.get(f"/api/v1/runs/{run}/events?kind=step_skipped&limit=1000").json()["items"]
    lane = next(trace for trace in traces(page, "scale") if trace["yaxis"] == "y2")
    assert lane["customdata"] == [event["step"] for event in events]
    assert len(events) >= 40
    expect(page.locator("[data-chart='scale'] [data-note]")).to_contain_text(f"{len(events)} skipped steps")


def test_means_and_the_band_over_seeds(page: Page) -> None:
    open_tall(page, "/experiments/4")
    told = page.request.get("/api/v1/experiments/4/series?names=eval/accuracy&max_points=500").json()["runs"]
    for name, pinned in (("32-true", ""), ("bf16-mixed", "bf16-mixed")):
        if pinned:
            page.select_option("[data-pin]", pinned)
        runs = [run for run in told if run["recipe"] == name and run["role"] in ("baseline", "candidate")]
        assert len(runs) == 5
        curves = [
            dict(zip(*(run["series"]["eval/accuracy"][key] for key in ("steps", "values")), strict=True))
            for run in runs
        ]
        page.wait_for_function(
            """(name) => document.querySelector("[data-chart='primary'] [data-plot]").data
                .some((trace) => trace.name === name && trace.fill === "tonexty")""",
            arg=name,
        )
        low, high, _, mean = [
            trace for trace in traces(page, "primary") if trace["name"] == name and trace["yaxis"] == "y"
        ]
        for index, step in enumerate(mean["x"]):
            values = [float(f"{curve[step]:.7g}") for curve in curves]
            assert mean["y"][index] == pytest.approx(sum(values) / 5, rel=1e-12)
            assert (low["y"][index], high["y"][index]) == (min(values), max(values))
        assert mean["x"] == sorted(curves[0])


def test_the_table_behind_a_chart(seeded_server: SeededServer, page: Page) -> None:
    run = a_run(seeded_server, 4, "32-true")
    open_tall(page, f"/runs/{run}")
    page.locator("[data-chart='loss'] details:not(.save-menu) summary").click()
    cells = page.locator("[data-chart='loss'] [data-table] tbody td")
    expect(cells).to_have_count(7)
    row = cells.all_inner_texts()
    told = page.request.get(f"/api/v1/runs/{run}").json()["metrics"]["train/loss"]
    assert int(row[2]) == told["num_points"]
    assert [float(text.replace(",", "")) for text in row[4:]] == [
        pytest.approx(told[key], rel=1e-4) for key in ("last", "min", "max")
    ]


def affine(pairs: list[tuple[float, float]]) -> None:
    """That one number is the other times a factor plus a constant, to a tenth of a pixel: places of a linear scale."""
    (x0, y0), (x1, y1) = min(pairs), max(pairs)
    slope = (y1 - y0) / (x1 - x0) if x1 != x0 else 0.0
    for x, y in pairs:
        assert y == pytest.approx(y0 + slope * (x - x0), abs=0.11)


@pytest.mark.parametrize("workload", ["digits-cnn", "stdlib-gpt", "photo-denoiser"])
def test_trends(page: Page, workload: str) -> None:
    page.goto(f"/trends?workload={workload}")
    told = page.request.get(f"/api/v1/trends/{workload}").json()
    for panel in page.locator(".trend").all():
        title = panel.locator("h3").inner_text()
        measure = next(
            key
            for key, word in {"speed": "Throughput", "memory": "memory", "quality": "Quality"}.items()
            if word in title
        )
        figures = [point[measure] for point in told["points"] if isinstance(point[measure], int | float)]
        dots = panel.locator("circle")
        places = [float(y) for y in dots.evaluate_all("(all) => all.map((dot) => dot.getAttribute('cy'))")]
        assert len(places) == len(figures)
        affine(list(zip(sorted(figures), sorted(places, reverse=True), strict=True)))
    assert (
        page.locator("#points-title ~ span").inner_text()
        == f"the newest {len(told['points'])} of {len(told['points'])}"
    )
    changes = page.locator("section[aria-labelledby=changes-title] li")
    assert changes.count() == len(told["changes"])


def test_devices(page: Page) -> None:
    page.goto("/devices?workload=digits-cnn")
    points = page.request.get("/api/v1/trends/digits-cnn").json()["points"]
    compared = 0
    for row in page.locator("table.devices tbody tr").all():
        device = row.locator("th").inner_text()
        for cell in row.locator("td").all():
            link = cell.locator("a[href^='/experiments/']")
            if not link.count():
                continue
            experiment = int((link.get_attribute("href") or "").rsplit("/", 1)[1])
            text = cell.inner_text()
            fitting = [point for point in points if (point["experiment_id"], point["device"]) == (experiment, device)]
            ratios = {point["speed_ratio"] for point in fitting if point["speed_ratio"]}
            shown = re.search(r"^×([\d.]+)", text)
            if shown:
                assert any(float(shown[1]) == pytest.approx(ratio, rel=6e-3) for ratio in ratios)
                compared += 1
    assert compared >= 2


@pytest.fixture
def batch_search(seeded_server: SeededServer) -> Iterator[int]:
    """A search for the largest batch of an experiment's recipe, taken away afterwards."""
    with seeded_server.database.write() as session:
        model = session.get_one(Run, a_run(seeded_server, 4, "bf16-mixed"))
        run = Run(
            experiment_id=model.experiment_id, kind="batch-size", role="analysis", recipe_name=model.recipe_name,
            recipe=model.recipe, seed=0, steps=0, config=model.config, state="completed", attempt=1,
            environment=model.environment, created_at=model.created_at, started_at=model.started_at,
            ended_at=model.ended_at,
        )  # fmt: skip
        session.add(run)
        session.flush()
        points = [
            {"batch": batch, "fits": rate is not None, "samples_per_s": rate or 0.0, "peak_bytes": batch * 10_000_000}
            for batch, rate in BATCHES.items()
        ]
        content = {"answer": "64 fits, 128 does not.", "largest": 64, "smallest_too_large": 128, "points": points}
        payload = {"kind": "batch-size", "final": True, "content": content}
        session.add(
            Event(run_id=run.id, attempt=1, sequence=1, kind="report", step=None, payload=payload, at=model.created_at)
        )
        run_id = run.id
    yield run_id
    with seeded_server.database.write() as session:
        session.execute(delete(Run).where(Run.id == run_id))


def test_batch_sizes(page: Page, batch_search: int) -> None:
    told = page.request.get(f"/api/v1/runs/{batch_search}/report").json()["content"]
    page.goto("/batch-size?workload=digits-cnn")
    titles = page.locator(".trend-chart circle title").evaluate_all("(all) => all.map((title) => title.textContent)")
    fitting = [point for point in told["points"] if point["fits"]]
    assert len(titles) == len(fitting) == 4
    places = page.locator(".trend-chart circle").evaluate_all(
        "(all) => all.map((dot) => ['cx', 'cy'].map((key) => Number(dot.getAttribute(key))))"
    )
    for title, point in zip(titles, fitting, strict=True):
        assert f"batch {point['batch']}, {point['samples_per_s']:.3g} samples/s" in title
    affine([(math.log(point["batch"]), place[0]) for point, place in zip(fitting, places, strict=True)])
    affine([(math.log(point["samples_per_s"]), place[1]) for point, place in zip(fitting, places, strict=True)])
    expect(page.locator(".trend-chart .cross")).to_have_count(1)
    row = page.locator("section[aria-labelledby=largest-title] tbody tr").inner_text()
    assert f"{told['largest']}" in row
    assert "602" in row


def test_a_report_draws_the_points_of_its_runs(seeded_server: SeededServer, page: Page) -> None:
    run = a_run(seeded_server, 4, "bf16-mixed")
    body = f"What we saw.\n\n```chart\nruns: {run}\nseries: train/loss\ntitle: The loss\n```\n"
    given = {"title": "Figures", "project": "vision", "body": body}
    origin = {"Origin": seeded_server.base}
    made = page.request.post("/api/v1/reports", data=given, headers=origin).json()
    open_tall(page, f"/reports/{made['id']}")
    (chart,) = page.locator("[data-chart]").evaluate_all("(all) => all.map((one) => one.dataset.chart)")
    expect(page.locator(".main-svg").first).to_be_attached()
    drawn = drawn_curve(next(trace for trace in traces(page, chart) if trace["yaxis"] == "y"))
    _, told = told_curve(page, run, "train/loss", max(len(drawn), 1000))
    common = drawn.keys() & told.keys()
    assert len(common) > 300
    assert {step: drawn[step] for step in common} == {step: told[step] for step in common}
    assert page.request.delete(f"/api/v1/reports/{made['id']}", headers=origin).status == 204
