"""Forms in a real browser: a new experiment, its faults, the cure, tokens, and what a viewer may not."""

from __future__ import annotations

import pytest
from conftest import Dashboard
from dashboard import complaints_of
from playwright.sync_api import Page, expect

from server.accounts import service as accounts

pytestmark = pytest.mark.browser


def test_faults_are_shown_at_their_fields_and_nothing_is_lost(dashboard: Dashboard) -> None:
    with dashboard.open() as context:
        page = context.new_page()
        page.goto("/experiments/new?workload=digits-cnn")
        page.fill("#name", "My question")
        page.fill("[name='params.lr']", "7")
        page.fill("#seeds", "0")
        page.locator("details", has=page.locator("#note")).locator("summary").click()
        page.fill("#note", "why we ask")
        page.click("text=Submit experiment")
        assert "at most 1" in page.inner_text("[id='error-params.lr']")
        assert page.get_attribute("[name='params.lr']", "aria-invalid") == "true"
        assert page.input_value("#name") == "My question"
        assert page.input_value("[name='params.lr']") == "7"
        assert page.input_value("#note") == "why we ask"


def test_preview_follows_the_form(dashboard: Dashboard) -> None:
    with dashboard.open() as context:
        page = context.new_page()
        complaints = complaints_of(page)
        page.goto("/experiments/new?workload=digits-cnn")
        page.fill("#seeds", "2")
        expect(page.locator("[data-preview=cli]")).to_contain_text("--seeds 2")
        page.check("[name='recipe.4.on']")
        expect(page.locator("[data-preview=cli]")).to_contain_text("-r fp16:none")
        expect(page.locator("[data-preview=curl]")).to_contain_text('"kind": "none"')
        expect(page.locator("[data-preview=runs]")).to_contain_text("11 runs: 8 train, 2 control, 1 benchmark")
        assert complaints == []


def test_submitting_opens_the_experiment(dashboard: Dashboard) -> None:
    with dashboard.open() as context:
        page = context.new_page()
        page.goto("/experiments/new?workload=digits-cnn")
        page.fill("#name", "From the form")
        page.fill("#seeds", "3, 7, 11")
        page.fill("[name='params.lr']", "0.002")
        page.click("text=Submit experiment")
        page.wait_for_url(lambda url: "/new" not in url)
        assert page.inner_text("h1") == "From the form"
        submitted = context.request.get(f"/api/v1{page.url.removeprefix(dashboard.base)}").json()
        assert submitted["seeds"] == [3, 7, 11]
        assert submitted["params"]["lr"] == 0.002
        cancel(page)


def test_the_cure_is_one_press_away(dashboard: Dashboard) -> None:
    with dashboard.open() as context:
        page = context.new_page()
        page.goto("/experiments/3")
        page.click("button:has-text('Run the cure')")
        page.wait_for_url(lambda url: not url.endswith(("/3", "/submission")))
        submitted = context.request.get(f"/api/v1{page.url.removeprefix(dashboard.base)}").json()
        assert submitted["workload"] == "photo-denoiser"
        assert submitted["state"] == "queued"
        cancel(page)


def cancel(page: Page) -> None:
    page.click("text=Cancel")
    expect(page.locator("[data-region=facts]")).to_contain_text("cancelled")


def test_a_token_is_shown_once_and_can_be_revoked(dashboard: Dashboard) -> None:
    with dashboard.open() as context:
        page = context.new_page()
        page.goto("/account")
        page.fill("#token-name", "laptop")
        page.select_option("#token-role", "viewer")
        page.click("text=Create token")
        secret = page.inner_text("#secret")
        assert secret.startswith("amp_")
        page.goto("/account")
        assert secret not in page.content()
        page.click("[aria-label='Revoke laptop']")
        assert "revoked" in page.inner_text("main")


def test_a_viewer_finds_everything_and_submits_nothing(dashboard: Dashboard) -> None:
    with dashboard.history.database.write() as session:
        accounts.create_user(session, "vera", "viewer")
    with dashboard.open_as("vera") as context:
        page = context.new_page()
        page.goto("/experiments")
        page.click("tr:has-text('UNSAFE') >> text=Photo denoiser at a tenth of the light")
        assert "UNSAFE" in page.inner_text("main")
        assert page.locator("button:has-text('Run the cure')").count() == 0
        assert page.locator("text=New experiment").count() == 0
        answer = page.goto("/experiments/new")
        assert answer is not None
        assert answer.status == 403
        assert "needs submitter" in page.inner_text("main")


def test_signing_in_by_link_needs_the_button(dashboard: Dashboard) -> None:
    with dashboard.history.database.write() as session:
        link = accounts.first_sign_in_link(session)
    with dashboard.browser.new_context(base_url=dashboard.base) as context:
        page = context.new_page()
        for _ in range(2):  # opening it twice does not use it up
            page.goto(accounts.sign_in_url("", link))
        page.click("button:has-text('Sign in')")
        page.wait_for_url(f"{dashboard.base}/")
        page.goto("/account")
        page.click("text=Sign out")
        page.goto(accounts.sign_in_url("", link))
        page.click("button:has-text('Sign in')")
        assert "was used" in page.inner_text("[role=alert]")
