"""What people come for, page by page, on a team's history: the answer of an experiment, alerts, reports, the team."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import SeededServer
from dashboard import complaints_of
from playwright.sync_api import Page, expect
from views import open_tall, plot_area, traces

from server.db.tables import Run

pytestmark = pytest.mark.browser

SLOTS = {"bf16-mixed": "bf16", "16-mixed": "fp16"}
HEADINGS = ["Findings", "Is it as good?", "Scorecard against 32-true", "Curves", "Runs"]


@pytest.fixture
def page(seeded_server: SeededServer) -> Iterator[Page]:
    with seeded_server.open() as context:
        opened = context.new_page()
        complaints = complaints_of(opened)
        yield opened
        assert complaints == []


def test_an_experiment_begins_with_its_findings(seeded_server: SeededServer, page: Page) -> None:
    page.goto(f"/experiments/{seeded_server.history.hostile}")
    told = page.request.get(f"/api/v1/experiments/{seeded_server.history.hostile}/comparison").json()
    titles = [title.split(",")[0] for title in page.locator("main h2").all_inner_texts()]
    places = [titles.index(heading) for heading in HEADINGS]
    assert places == sorted(places), "the answer comes before any table"
    assert page.locator(".headline").inner_text().startswith(told["headline"].split(" (")[0])
    assert page.locator(".statements li").count() <= 3
    top = page.locator(".findings-card [data-chart='primary']").bounding_box()
    table = page.locator("main table").first.bounding_box()
    assert top is not None
    assert table is not None
    assert top["y"] < table["y"], "one chart before any table"
    page.locator(".findings summary", has_text="Why").click()
    expect(page.locator(".findings .prose")).to_contain_text("%")


def test_verdict_cards_and_scorecard_say_what_rest_says(page: Page) -> None:
    page.goto("/experiments/4")
    told = page.request.get("/api/v1/experiments/4/comparison").json()
    for recipe in told["recipes"]:
        card = page.locator(f".verdict[aria-label='{recipe['recipe']}']")
        expect(card.locator(".badge").first).to_contain_text(recipe["verdict"].replace("_", " ").upper())
        row = page.locator(f".score tr.slot-{SLOTS[recipe['recipe']]}")
        speed = recipe["gain"]["speed"]
        if speed:
            expect(row).to_contain_text(f"{speed['ratio']:.2f}")
        expect(row.locator(".whisker")).to_be_visible()
    expect(page.locator(".tradeoff")).to_be_visible()


def test_the_loss_of_seeds_their_band_and_where_a_recipe_leaves_it(seeded_server: SeededServer, page: Page) -> None:
    open_tall(page, f"/experiments/{seeded_server.history.hostile}")
    told = page.request.get(f"/api/v1/experiments/{seeded_server.history.hostile}/comparison").json()
    loss = traces(page, "loss")
    bands = {trace["name"] for trace in loss if trace["fill"] == "tonexty"}
    assert bands == {"32-true"}, "the band is the baseline's"
    marks = page.evaluate(
        """() => document.querySelector("[data-chart='loss'] [data-plot]").layout.annotations.map(({ text }) => text)"""
    )
    steps = [one["divergence"]["step"] for one in told["recipes"] if (one.get("divergence") or {}).get("step")]
    assert [int(re.sub(r"\D", "", mark.split("step ")[1])) for mark in marks] == steps
    page.select_option("[data-pin]", "bf16-mixed")
    page.wait_for_function(
        """() => document.querySelector("[data-chart='loss'] [data-plot]").data
            .some((trace) => trace.fill === "tonexty" && trace.name === "bf16-mixed")"""
    )
    expect(page.locator("[data-chart='loss'] [data-note] .bad")).to_contain_text("since step")


def test_each_of_several_zooms_brings_its_own_points(page: Page) -> None:
    open_tall(page, "/experiments/6")
    seen = [page.url]
    for _ in range(3):
        box = plot_area(page, "loss")
        x, y = box["x"] + 0.45 * box["width"], box["y"] + box["height"] / 2
        with page.expect_response(lambda answer: "/points?" in answer.url and "from=" in answer.url):
            page.mouse.move(x, y)
            page.mouse.down()
            page.mouse.move(x + box["width"] / 12, y + 2, steps=8)
            page.mouse.up()
        page.wait_for_function("(before) => location.href !== before", arg=seen[-1])
        seen.append(page.url)
        page.wait_for_function(
            """() => {
              const [low, high] = new URLSearchParams(location.search).get("window").split("..").map(Number);
              const { data, layout } = document.querySelector("[data-chart='loss'] [data-plot]");
              const inside = data.flatMap(({ x }) => x).filter((step) => step >= low && step <= high).length;
              return Math.abs(layout.xaxis.range[0] - low) < 1e-3 * (high - low) && inside > 50;
            }"""
        )
    assert len(set(seen)) == 4
    page.locator("[data-whole]").click()
    page.wait_for_function("() => !location.search.includes('window=')")


def test_full_screen_of_a_chart_and_back(page: Page) -> None:
    open_tall(page, "/experiments/4")
    button = page.locator("[data-chart='loss'] [data-screen]")
    button.click()
    page.wait_for_function("document.fullscreenElement?.dataset.chart === 'loss'")
    button.click()
    page.wait_for_function("document.fullscreenElement === null")


def test_costs_are_told_apart_from_quality(page: Page) -> None:
    page.goto("/experiments/2")
    costs = page.locator("[data-region=costs]")
    for words in ("skipped", "Memory"):
        expect(costs).to_contain_text(words)
    skipped = page.request.get("/api/v1/runs?q=experiment:2+recipe:16-mixed+kind:train").json()["items"]
    assert all(run["state"] == "completed" for run in skipped)


def test_configurations_environments_and_numbers_are_compared(page: Page) -> None:
    page.goto("/compare?runs=1,60,150")
    told = page.request.get("/api/v1/compare?runs=1,60,150").json()
    for name in ("config", "environment"):
        differing = [row["name"] for row in told[name] if row["differs"] and row["name"] != "seed"]
        card = page.locator(f"section[aria-labelledby='{name}-title']")
        assert differing
        shown = card.locator(".scroll tbody th").all_inner_texts()
        assert {row.rsplit(".", 1)[-1] for row in differing[:6]} <= {row.rsplit(".", 1)[-1] for row in shown}
    expect(page.locator(".legend [data-recipe]").first).to_be_visible()


def test_an_alert_rule_is_made_on_the_page_and_taken_back(page: Page) -> None:
    page.goto("/trends?workload=stdlib-gpt")
    form = page.locator("form[action='/trends/rules']")
    form.locator("[name=measure]").select_option("speed")
    form.locator("[name=recipe]").select_option("bf16-mixed")
    form.locator("[name=percent]").fill("7.5")
    form.get_by_role("button", name="Watch").click()
    rule = page.locator("#rules li", has_text="Speed of bf16-mixed worse by more than 7.5 %")
    expect(rule).to_be_visible()
    (told,) = page.request.get("/api/v1/alert-rules?workload=stdlib-gpt").json()["items"]
    assert (told["measure"], told["recipe"], told["worse_by"]) == ("speed", "bf16-mixed", pytest.approx(0.075))
    rule.get_by_role("button", name=re.compile("Delete")).click()
    expect(rule).to_have_count(0)


def test_a_report_is_written_changed_and_exported_to_one_file(page: Page, tmp_path: Path) -> None:
    page.goto("/reports")
    page.get_by_role("link", name=re.compile("New report|Write the first")).first.click()
    page.locator("[name=title]").fill("Is bf16 as good? <img src=x onerror=alert(1)>")
    page.locator("main [name=project]").fill("vision")
    page.locator("[name=body]").fill(
        "## Answer\n\nYes.\n\n```chart\nexperiment: 4\nseries: train/loss\ntitle: Loss\n```\n"
    )
    page.get_by_role("button", name="Save").click()
    page.wait_for_url(re.compile(r"/reports/\d+$"))
    expect(page.get_by_role("heading", level=1)).to_have_text("Is bf16 as good? <img src=x onerror=alert(1)>")
    expect(page.locator("[data-chart] .main-svg").first).to_be_attached()
    address = page.url
    page.get_by_role("link", name="Edit").click()
    page.locator("[name=body]").fill("## Answer\n\nYes, with five seeds.\n")
    page.get_by_role("button", name="Save version 2").click()
    expect(page.locator("article")).to_contain_text("with five seeds")
    page.locator("summary", has_text="History: 2 versions").click()
    page.get_by_role("link", name="Version 1").click()
    expect(page.get_by_role("heading", name="Answer")).to_be_visible()
    expect(page.locator(".notice")).to_contain_text("an earlier version")
    page.goto(address)
    with page.expect_download() as file:
        page.get_by_role("link", name="One HTML file").click()
    saved = tmp_path / "report.html"
    file.value.save_as(saved)
    assert "<script" not in re.sub(r"<script type=\"application/json\".*?</script>", "", saved.read_text("utf-8"))
    with page.context.browser.new_context(offline=True) as alone:  # type: ignore[union-attr]
        elsewhere = alone.new_page()
        elsewhere.goto(saved.as_uri())
        assert "with five seeds" in elsewhere.inner_text("body")
    page.goto(address)
    page.locator("summary", has_text="Delete").click()
    page.get_by_role("button", name="Delete it").click()
    page.wait_for_url("**/reports")


def test_members_come_and_go_and_the_trail_knows(page: Page) -> None:
    page.goto("/team")
    form = page.locator("form", has=page.locator("select[aria-label='Person for vision']"))
    form.locator("[name=user]").select_option("ann")
    role = form.locator("[name=role] option").first.inner_text()
    form.locator("[name=role]").select_option(role)
    form.get_by_role("button", name="Add a member to vision").click()
    taken = page.get_by_role("button", name="Take ann out of vision")
    expect(taken).to_be_visible()
    expect(page.locator("section[aria-labelledby=activity-title]")).to_contain_text("changed the members of")
    taken.click()
    expect(page.get_by_role("button", name="Take ann out of vision")).to_have_count(0)
    page.goto("/audit")
    entries = page.locator("main tbody tr")
    expect(entries.first).to_contain_text("project.member")
    told = page.request.get("/api/v1/audit").json()["items"]
    assert told[0]["action"] == "project.member"


def test_a_submitter_sees_the_team_and_no_audit(seeded_server: SeededServer) -> None:
    with seeded_server.open_as("ann") as context:
        page = context.new_page()
        page.goto("/team")
        expect(page.locator("section[aria-labelledby=people-title]")).to_contain_text("Björk Þórsdóttir")
        assert page.get_by_role("link", name="Audit trail").count() == 0
        answer = page.goto("/audit")
        assert answer is not None
        assert answer.status == 403


def test_a_list_that_refreshes_keeps_the_place_of_the_keyboard(seeded_server: SeededServer, page: Page) -> None:
    page.goto("/runs")
    expect(page.locator("[data-live]")).to_have_attribute("data-state", "live")
    for _ in range(2):  # to the content, then to the rows
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "rows"
    page.evaluate("window.before = document.getElementById('rows')")
    with seeded_server.database.write() as session:
        run = session.get_one(Run, seeded_server.history.running_run)
        run.step += 1
    page.wait_for_function("() => document.getElementById('rows') !== window.before")
    assert page.evaluate("document.activeElement.id") == "rows"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.matches('[data-row] input')")


def test_the_theme_follows_the_system_until_it_is_chosen(seeded_server: SeededServer) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    with seeded_server.open(dark=True) as context:
        page = context.new_page()
        page.goto("/trends")
        dark = page.evaluate(background)
        for _ in range(2):  # system, dark, light
            page.click("[data-theme-switch] button")
            page.wait_for_load_state()
        assert page.get_attribute("html", "data-theme") == "light"
        assert page.evaluate(background) != dark
        page.goto("/experiments/4")
        assert page.get_attribute("html", "data-theme") == "light"
