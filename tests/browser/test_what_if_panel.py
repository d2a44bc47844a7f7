"""The what-if explorer in a real browser: by keyboard, the window moves at once and the shares follow."""

from __future__ import annotations

import pytest
from conftest import Dashboard
from dashboard import complaints_of

pytestmark = pytest.mark.browser


def test_a_key_moves_the_window_and_the_shares_follow(dashboard: Dashboard) -> None:
    with dashboard.open() as context:
        page = context.new_page()
        complaints = complaints_of(page)
        page.goto("/runs/1")
        slider = page.locator("[data-whatif-power]")
        box = page.locator("[data-whatif-window]")
        zero = page.locator("[data-whatif-rows] tr").first.locator("td").first
        slider.scroll_into_view_if_needed()
        page.wait_for_selector('[data-whatif="ready"]')
        before = float(box.get_attribute("x") or "nan")
        with page.expect_response(lambda response: "/whatif?" in response.url) as answer:
            slider.focus()
            page.keyboard.press("Home")
        assert page.locator("[data-whatif-scale]").inner_text() == "2^-24"
        assert float(box.get_attribute("x") or "nan") > before
        whole = answer.value.json()["whole"]
        assert whole["scale"] == 2.0**-24
        assert whole["underflow"] > 0.9
        page.wait_for_function(
            "([cell, text]) => cell.textContent === text",
            arg=[zero.element_handle(), f"{100 * whole['underflow']:.2f} %" if whole["underflow"] < 1 else "100.00 %"],
        )
        assert complaints == []
