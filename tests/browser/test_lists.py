"""The lists of experiments and runs and the home page, on a team's history of 12 experiments and 300 runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from conftest import SeededServer
from dashboard import complaints_of, signed_in
from playwright.sync_api import BrowserContext, Locator, Page, expect

pytestmark = pytest.mark.browser

ADDRESSES = (
    "/",
    "/experiments",
    "/experiments?group=workload&archived=any",
    "/experiments?cols=verdicts,primary,params.lr,project,ended_at",
    "/runs",
    "/runs?group=recipe&open=16-mixed",
    "/runs?group=tag&cols=state,primary,train/loss,memory/allocated_bytes",
    "/runs?q=experiment:2&cols=state,primary,perf/samples_per_s,device,commit,params.layers&sort=-primary",
    "/runs?q=recipe:fp16+staus:failed",
    "/runs?q=nothing-like-this",
)


@pytest.fixture(scope="module", params=[False, True], ids=["light", "dark"])
def themed(request: pytest.FixtureRequest, seeded_server: SeededServer) -> Iterator[BrowserContext]:
    with seeded_server.open(dark=request.param) as opened:
        yield opened


@pytest.fixture
def page(seeded_server: SeededServer) -> Iterator[Page]:
    with seeded_server.open() as context:
        opened = context.new_page()
        complaints = complaints_of(opened)
        yield opened
        assert complaints == []


def rows(page: Page) -> Locator:
    return page.locator("tr[data-row]:not(.group)")


def goto(page: Page, path: str) -> None:
    page.goto(path)
    expect(page.locator("[data-live]")).to_have_attribute("data-state", "live")


def table_text(page: Page) -> str:
    """What the table says but for how long ago."""
    return re.sub(r"\d+ \w+ ago|just now", "", page.locator('[data-region="table"]').inner_text())


@pytest.mark.parametrize("path", ADDRESSES)
def test_no_complaint_and_accessible(themed: BrowserContext, path: str) -> None:
    page = themed.new_page()
    complaints = complaints_of(page)
    page.goto(path)
    page.wait_for_timeout(150)
    found = Axe().run(page).response["violations"]
    page.close()
    assert complaints == []
    assert [f"{item['id']}: {item['nodes'][0]['html'][:200]}" for item in found] == []


@pytest.mark.parametrize("path", ADDRESSES)
def test_a_phone_needs_no_sideways_scrolling(seeded_server: SeededServer, path: str) -> None:
    with seeded_server.open(width=390) as phone:
        page = phone.new_page()
        page.goto(path)
        for width in (390, 360):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, width


@pytest.mark.parametrize("path", ADDRESSES)
def test_a_view_is_its_address(seeded_server: SeededServer, path: str) -> None:
    """The same address shows the same in a fresh browser, and after a reload."""
    seen = []
    for _ in range(2):
        with seeded_server.open() as context:
            page = context.new_page()
            page.goto(path)
            seen.append(
                re.sub(
                    r"(\d+ \w+ ago|in about [\w ]+|just now|live|stale \d+ s)", "", page.locator("main").inner_text()
                )
            )
            page.reload()
            assert urlsplit(page.url).path + ("?" + urlsplit(page.url).query if "?" in path else "") == path
    assert seen[0] == seen[1]


def test_searching_with_completion_and_going_back(page: Page) -> None:
    goto(page, "/runs")
    before = table_text(page)
    page.keyboard.press("/")
    page.keyboard.type("rec")
    expect(page.locator(".completions li").first).to_have_text(re.compile("^recipe:"))
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("#q")).to_have_value("recipe:")
    page.keyboard.type("bf")
    expect(page.locator(".completions li b").first).to_have_text("recipe:bf16-mixed")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Tab")
    expect(page.locator("#q")).to_have_value("recipe:bf16-mixed ")
    page.keyboard.type("status:completed eval/accuracy>0.9")
    page.keyboard.press("Enter")
    expect(rows(page).first).to_contain_text("bf16-mixed")
    page.wait_for_url(re.compile("q=recipe"))
    assert "recipe%3Abf16-mixed+status%3Acompleted+eval%2Faccuracy%3E0.9" in page.url
    assert set(rows(page).locator(".recipe").all_inner_texts()) == {"bf16-mixed"}
    page.go_back()
    expect(page.locator("#q")).to_have_value("")
    assert table_text(page) == before


def test_a_wrong_word_is_marked_where_it_stands(page: Page) -> None:
    goto(page, "/experiments")
    page.locator("#q").fill("verdict:safe staus:failed ")
    page.locator("#q").press("End")
    expect(page.locator("[data-marks] mark")).to_have_text("staus:failed")
    expect(page.locator("#q-error")).to_contain_text("did you mean status?")
    page.locator("#q").press("Escape")
    page.locator("#q").press("Enter")
    expect(page.get_by_role("heading", name="The search was not understood")).to_be_visible()
    page.get_by_role("link", name="Show all").click()
    expect(rows(page)).to_have_count(11)


def test_filters_sorts_and_columns_change_the_address_and_nothing_reloads(page: Page) -> None:
    goto(page, "/runs")
    page.evaluate("window.sameDocument = true")
    page.locator("#workload").select_option("digits-cnn")
    page.wait_for_url(re.compile("workload=digits-cnn"))
    page.get_by_role("link", name="Primary metric").click()
    page.wait_for_url(re.compile("sort=-primary"))
    expect(page.locator("th[aria-sort=descending]")).to_contain_text("Primary metric")
    values = [
        float(text.split()[0]) for text in page.locator('td[data-label="Primary metric"]').all_inner_texts() if text
    ]
    assert len(values) > 20
    assert values == sorted(values, reverse=True)
    page.locator("summary", has_text="Columns").click()
    page.get_by_label("lr parameter").check()
    page.get_by_label("Owner").uncheck()
    page.get_by_role("button", name="Show these").click()
    expect(page.get_by_role("columnheader", name="lr")).to_be_visible()
    expect(page.get_by_role("columnheader", name="Owner")).to_have_count(0)
    assert page.evaluate("window.sameDocument")
    page.go_back()
    expect(page.get_by_role("columnheader", name="Owner")).to_be_visible()


def test_groups_say_what_rest_says_and_open(page: Page) -> None:
    goto(page, "/runs?group=recipe")
    told = page.request.get("/api/v1/runs/groups?by=recipe&metrics=primary,train/loss").json()["items"]
    shown = page.locator("tr.group")
    assert shown.count() == len(told)
    for number, group in enumerate(told):
        text = shown.nth(number).inner_text()
        assert group["title"] in text
        assert f"{group['num_runs']} runs" in text
        for spread in group["spreads"]["primary"]:
            assert f"{spread['mean']:.4g}" in text.replace(",", "")
            if spread["delta"] is not None:
                assert f"over {spread['num_pairs']} pair" in text
    broken = page.locator("tr.group", has_text="NaN in 5")
    expect(broken).to_contain_text("since step 690")
    broken.get_by_role("button").click()
    expect(page.locator("tr.member").first).to_contain_text("16-mixed")
    page.wait_for_url(re.compile("open=16-mixed"))
    page.get_by_role("link", name=re.compile("runs as a list")).click()
    page.wait_for_url(re.compile("in=recipe%3A16-mixed"))
    expect(page.locator("tr.group")).to_have_count(0)


def test_rows_carry_what_is_not_finite_and_hostile_names_are_text(page: Page, seeded_server: SeededServer) -> None:
    goto(page, f"/runs?q=experiment:{seeded_server.history.hostile}+recipe:16-mixed+kind:train")
    expect(rows(page)).to_have_count(5)
    for row in rows(page).all():
        expect(row.locator(".badge.failed")).to_have_text("NaN, ∞ since 690")
    assert page.locator("main img, main script:not([type])").count() == 0
    goto(page, "/experiments")
    expect(page.locator("th[scope=row]", has_text="<img src=x onerror")).to_be_visible()
    assert page.title() == "Experiments · ampboard"


def test_rows_by_keyboard_alone(page: Page) -> None:
    goto(page, "/runs?state=completed")
    in_row = "Boolean(document.activeElement.closest('[data-row]'))"
    pressed = 0
    while not page.evaluate(in_row) and pressed < 10:
        page.keyboard.press("Tab")
        pressed += 1
        if page.evaluate("document.activeElement.matches('.skip')"):
            page.keyboard.press("Enter")  # to the content, then to the rows
    assert page.evaluate(in_row), "rows lie within ten Tabs"
    goto(page, "/runs?state=completed")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("x")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Shift+X")
    expect(page.locator("[data-count]")).to_have_text("3 selected")
    page.keyboard.press("Escape")
    expect(page.locator("[data-count]")).to_have_text("Nothing selected")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("k")
    focused = page.evaluate("document.activeElement.getAttribute('href')")
    assert focused == rows(page).nth(2).locator(".row-link").get_attribute("href")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{focused}")


def test_bulk_actions_are_undone(page: Page) -> None:
    goto(page, "/experiments")
    target = page.locator("tr[data-row]", has_text="two seeds are not enough")
    target.get_by_role("checkbox").check()
    page.get_by_label("Tag", exact=True).fill("night run")
    page.get_by_role("button", name="Add tag").click()
    expect(target).to_contain_text("night run")
    page.locator(".toast").get_by_role("button", name="Undo").click()
    expect(target).not_to_contain_text("night run")
    for action in ("Archive", "Delete"):
        target.get_by_role("checkbox").check()
        page.get_by_role("button", name=action, exact=True).click()
        expect(target).to_have_count(0)
        expect(rows(page)).to_have_count(10)
        page.locator(".toast").last.get_by_role("button", name="Undo").click()
        expect(target).to_have_count(1)
    running = page.locator("tr[data-row]", has_text="Digits with a larger step")
    running.get_by_role("checkbox").check()
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.locator(".toast").last).to_contain_text("cancel it first")
    expect(running).to_have_count(1)


def test_views_are_saved_shared_and_deleted(page: Page, seeded_server: SeededServer) -> None:
    goto(page, "/runs?q=status%3Afailed&group=experiment")
    page.locator("summary", has_text="Save view").click()
    page.get_by_label("Name").fill("Failures by experiment")
    page.get_by_label("Share with the team").check()
    page.get_by_role("button", name="Save", exact=True).click()
    saved = page.locator(".view", has_text="Failures by experiment")
    expect(saved).to_have_attribute("aria-current", "true")
    with seeded_server.open_as("visitor") as other:
        theirs = other.new_page()
        theirs.goto("/runs")
        theirs.locator(".view", has_text="Failures by experiment").click()
        expect(theirs.locator("tr.group")).to_have_count(1)
        assert table_text(theirs).count("failed") > 0
        assert theirs.get_by_role("checkbox", name="Select").count() == 0, "a viewer changes nothing"
        assert theirs.locator("[data-bulk]").count() == 0
    page.get_by_role("button", name="Delete the view Failures by experiment").click()
    expect(saved).to_have_count(0)


def test_pages_of_rows_and_all_of_them_are_reached(page: Page) -> None:
    goto(page, "/runs?cols=state")
    seen: list[str] = []
    while True:
        seen += [str(link.get_attribute("href")) for link in page.locator(".row-link").all()]
        following = page.locator("[data-next]")
        if not following.count():
            break
        address = following.get_attribute("href")
        following.click()
        page.wait_for_url(re.compile(re.escape(str(address)) + "$"))
        expect(page.locator(".row-link").first).not_to_have_attribute("href", seen[-1])
        page.wait_for_function(
            "href => ![...document.querySelectorAll('.row-link')].some(a => a.getAttribute('href') === href)",
            arg=seen[-1],
        )
    told = page.request.get("/api/v1/runs?limit=200").json()
    assert len(seen) == len(set(seen)) > 200
    assert seen[0] == f"/runs/{told['items'][0]['id']}"


def test_everything_but_comfort_works_without_scripts(seeded_server: SeededServer) -> None:
    context = seeded_server.browser.new_context(base_url=seeded_server.base, java_script_enabled=False)
    with signed_in(seeded_server.browser, seeded_server.base, seeded_server.secret) as signed:
        context.add_cookies(signed.cookies())
    with context:
        page = context.new_page()
        page.goto("/experiments")
        page.get_by_label("Search").fill("name:0")
        page.get_by_role("button", name="Apply").click()
        expect(rows(page)).to_have_count(1)
        rows(page).get_by_role("checkbox").check()
        page.get_by_role("button", name="Archive", exact=True).click()
        expect(page.locator(".list-notice")).to_contain_text("1 archived.")
        expect(rows(page)).to_have_count(0)
        page.get_by_role("button", name="Undo").click()
        expect(rows(page)).to_have_count(1)
        page.goto("/runs?group=recipe")
        page.get_by_role("button", name="bf16-mixed").click()
        expect(page.locator("tr.member").first).to_contain_text("bf16-mixed")
        page.goto("/runs?q=staus:failed")
        expect(page.locator("[data-marks] mark")).to_have_text("staus:failed")


def test_home_shows_what_runs_what_ended_and_what_needs_a_look(page: Page) -> None:
    goto(page, "/")

    def region(name: str) -> Locator:
        return page.locator(f'[data-region="{name}"]')

    expect(region("running")).to_contain_text("Digits with a larger step")
    expect(region("finished")).to_contain_text("SAFE WITH CAUTION")
    expect(region("queue")).to_contain_text("waiting")
    expect(region("devices")).to_contain_text("NVIDIA A100")
    expect(region("troubled")).to_contain_text("CUDA out of memory")
    region("troubled").get_by_role("link", name=re.compile("failed$")).click()
    expect(page.locator("tr[data-row]").first).to_contain_text("GPT, 24 layers")
