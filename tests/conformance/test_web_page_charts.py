"""Every chart of the page has its scales, for eyes and for screen readers."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

import fencepost
from tests.conformance.test_web_page import browser, looks_at, sees, serve, show
from tests.conformance.test_web_page_access import LOOKS, busy
from tests.conformance.test_web_page_messages import picture
from tests.support.axe import violations

if TYPE_CHECKING:
    from playwright.sync_api import Page as Tab

__all__ = ["browser", "busy", "serve", "show"]

pytestmark = pytest.mark.browser

SCALES = """() => [...document.querySelectorAll("main svg")].map((drawing) => {
  const chart = drawing.closest("[data-chart]");
  const seen = (kind) => [...(chart?.querySelectorAll(`[data-scale=${kind}]`) || [])]
    .filter((label) => label.checkVisibility() && label.innerText.trim()).map((label) => label.innerText);
  return { chart: chart?.dataset.chart, y: seen("y"), x: seen("x"), words: drawing.getAttribute("aria-label") };
})"""
TIME = r"\d\d:\d\d:\d\d"


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
def test_every_chart_has_scales(
    scheme: str, width: int, busy: tuple[str, str], serve: Callable[..., str], show: Callable[..., Tab]
) -> None:
    servers, sink = busy
    tab = show(serve(servers), color_scheme=scheme, viewport={"width": width, "height": 800}, reduced_motion="reduce")
    root = tab.url.partition("#")[0]
    sees(tab, "Offsets written")
    with fencepost.Producer(servers) as producer:
        for _ in range(2000):
            producer.send("orders", b"x" * 10)
        producer.flush()
    shown = {
        "overview": "wide",
        "topic?name=orders": "wide",
        "group?name=warehouse": "wide",
        "transaction?name=billing": "lanes",
        "topics": "small",
        "groups": "small",
        "sinks": "small",
    }
    for view, kind in shown.items():
        looks_at(tab, f"{root}#/{view}")
        # The sink has decided one batch, and its chart begins with the second.
        if view == "sinks":
            sees(tab, sink)
            continue
        tab.locator(f"main [data-chart={kind}] svg").first.wait_for()
        charts = tab.evaluate(SCALES)
        assert {chart["chart"] for chart in charts} == {kind}, view
        for chart in charts:
            if kind == "lanes":
                assert re.search(TIME, chart["x"][0]), view
                assert len(chart["x"]) >= 2, view
                continue
            assert re.fullmatch(rf".* from {TIME} to {TIME}: now .*, at most .*", chart["words"]), view
            assert len(chart["y"]) >= (3 if kind == "wide" else 1), view
            if kind == "wide":
                assert chart["y"][-1] == "0", view
                assert [bool(re.fullmatch(TIME, label)) for label in chart["x"]] == [True, True, True], view
        assert violations(tab) == [], view
        assert tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0, view
        picture(tab, f"chart-{view.partition('?')[0]}-{scheme}-{width}")


def test_the_top_of_a_scale_is_a_round_number(
    busy: tuple[str, str], serve: Callable[..., str], show: Callable[..., Tab]
) -> None:
    tab = show(serve(busy[0]))
    sees(tab, "Brokers")
    tops = {0: 1, 0.3: 0.5, 1: 1, 1.01: 2, 7: 10, 301: 500, 1_000_000: 1_000_000, 1_000_001: 2_000_000}
    assert {most: tab.evaluate("(most) => topOf(most)", most) for most in tops} == tops
