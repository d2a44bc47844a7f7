"""A key that is down while a list refreshes acts when it is let go, and focus stays where it was."""

from __future__ import annotations

import pytest
from conftest import Dashboard
from dashboard import complaints_of
from playwright.sync_api import expect

pytestmark = pytest.mark.browser


def test_space_on_a_checkbox_outlives_a_refresh(dashboard: Dashboard) -> None:
    with dashboard.open() as context:
        page = context.new_page()
        complaints = complaints_of(page)
        page.goto("/runs?q=status%3Arunning")
        box = page.locator('[data-row] input[name="id"]').first
        page.wait_for_timeout(1500)  # the stream of changes has said where it begins
        step = page.locator("[data-row]").first.inner_text()
        box.focus()
        page.keyboard.down(" ")
        dashboard.history.add_point("train/loss", 0.61)
        page.wait_for_timeout(1800)
        assert page.evaluate("document.activeElement.name") == "id"
        page.keyboard.up(" ")
        expect(box).to_be_checked()
        expect(page.locator("[data-count]")).to_have_text("1 selected")
        page.wait_for_function(
            "(before) => document.querySelector('[data-row]').innerText !== before", arg=step, timeout=8000
        )
        expect(box).to_be_checked()
        assert page.evaluate("document.activeElement.name") == "id"
        page.keyboard.press(" ")
        expect(box).not_to_be_checked()
        assert complaints == []
