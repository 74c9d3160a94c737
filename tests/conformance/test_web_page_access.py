"""The page for everybody: no finding of axe-core in any view, and no need of a mouse."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

import fencepost
from tests.conformance.test_web_page import browser, looks_at, prepare, sees, serve, show
from tests.spark.plan_by_hand import Bench
from tests.support.axe import violations
from tests.support.sink_abilities import KEEPING

if TYPE_CHECKING:
    from playwright.sync_api import Page as Tab

__all__ = ["browser", "serve", "show"]

pytestmark = pytest.mark.browser

LOOKS = [(scheme, width) for scheme in ("light", "dark") for width in (420, 1400)]


@pytest.fixture(scope="module")
def busy() -> Iterator[tuple[str, str]]:
    """A broker with something in every view; its address and the name of its Spark sink."""
    with fencepost.Broker({"transaction.two.phase.commit.enable": True}) as broker:
        servers = broker.bootstrap_servers
        with (
            fencepost.Producer(servers) as producer,
            fencepost.Consumer(servers, group_id="warehouse", auto_offset_reset="earliest") as consumer,
        ):
            for number in range(5):
                producer.send("orders", b'{"order": %d}' % number, key=b"k", headers=[("a", b"1")]).result()
            consumer.subscribe(["orders"])
            while not consumer.poll(1000):
                pass
            consumer.commit()
            prepare(servers, "billing", "orders")
            sink = Bench(servers, KEEPING)
            opened = sink.open()
            decided, _ = sink.task(opened, 0), sink.task(opened, 0)
            sink.decide(0, [decided])
            yield servers, sink.sink


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
def test_axe_finds_nothing_in_any_view(
    scheme: str, width: int, busy: tuple[str, str], serve: Callable[..., str], show: Callable[..., Tab]
) -> None:
    servers, sink = busy
    shown: dict[str, str | re.Pattern[str]] = {
        "overview": "Brokers",
        "transactions": "billing",
        "transaction?name=billing": "It never times out",
        "topics": "orders",
        "topic?name=orders": "by billing",
        "messages?name=orders": re.compile(r"\d+ messages of"),
        "message?name=orders&partition=0&from=offset&at=0": "Headers",
        "settings?name=orders": "retention.ms",
        "groups": "warehouse",
        "group?name=warehouse": "1 member",
        "sinks": sink,
        f"sink?name={sink}": "Batch 0 is decided",
        "disks": "Topics by size",
        "access": "Client quotas",
    }
    address = serve(servers, allow_actions=True)
    tab = show(address, color_scheme=scheme, viewport={"width": width, "height": 800}, reduced_motion="reduce")
    found = {}
    for view, text in shown.items():
        looks_at(tab, f"{address}/{view}")
        sees(tab, text)
        found[view] = violations(tab)
        assert tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0, view
    tab.get_by_role("button", name="Set a quota").click()
    sees(tab, "IP address", where="dialog")
    found["dialog"] = violations(tab)
    assert {view: rules for view, rules in found.items() if rules} == {}


def focused(tab: Tab) -> str:
    """Return the text of the element with the focus."""
    found: str = tab.evaluate("document.activeElement.innerText || document.activeElement.getAttribute('aria-label')")
    return found


def tab_to(tab: Tab, text: str, most: int = 60) -> None:
    """Press Tab until the element with this text has the focus."""
    for _ in range(most):
        tab.keyboard.press("Tab")
        if focused(tab) == text:
            return
    pytest.fail(f"{most} times Tab do not lead to {text!r}, but to {focused(tab)!r}")


def test_a_record_is_written_without_a_mouse(
    busy: tuple[str, str], serve: Callable[..., str], show: Callable[..., Tab]
) -> None:
    tab = show(f"{serve(busy[0], allow_actions=True)}/overview")
    sees(tab, "Brokers")
    tab.keyboard.press("3")
    sees(tab, "Topics", where="main h1")  # the overview has the other texts too
    tab.keyboard.press("/")
    assert focused(tab) == "Filter by name"
    tab.keyboard.type("orders")
    tab_to(tab, "orders")
    tab.keyboard.press("Enter")
    sees(tab, "Browse messages")
    tab_to(tab, "Write a record …")
    tab.keyboard.press("Enter")
    sees(tab, "Transactional id", where="dialog")
    tab.keyboard.press("Escape")
    assert focused(tab) == "Write a record …"
    tab.keyboard.press("Enter")
    tab_to(tab, "Leave it as it is")
    tab.keyboard.press("Enter")
    assert focused(tab) == "Write a record …"
    tab.keyboard.press("Enter")
    tab.locator("dialog [name=value]").focus()
    tab.keyboard.type("by hand")
    tab_to(tab, "Continue")
    tab.keyboard.press("Enter")
    sees(tab, "Do this?", where="dialog")
    tab_to(tab, "Do it")
    tab.keyboard.press("Enter")
    sees(tab, "Done", where="dialog")
    tab.keyboard.press("Escape")
    assert focused(tab) == "Write a record …"


FILTER_AND_FOCUS = """([text, link]) => {
    const search = document.querySelector("[data-search]");
    search.value = text;
    search.dispatchEvent(new Event("input", { bubbles: true }));
    [...document.querySelectorAll("td a")].find((each) => each.innerText === link).focus();
}"""


def test_the_focus_stays_on_a_row_while_others_go_and_come(
    busy: tuple[str, str], serve: Callable[..., str], show: Callable[..., Tab]
) -> None:
    with fencepost.Admin(busy[0]) as admin:
        admin.create_topics(["earlier", "later"])
    try:
        tab = show(f"{serve(busy[0])}#/topics")
        sees(tab, "earlier", "orders", "later")
        tab.evaluate(FILTER_AND_FOCUS, ["orders", "orders"])
        sees(tab, "1 of")
        assert focused(tab) == "orders"
        tab.evaluate(FILTER_AND_FOCUS, ["", "orders"])
        sees(tab, "earlier")
        assert focused(tab) == "orders"
    finally:
        with fencepost.Admin(busy[0]) as admin:
            admin.delete_topics(["earlier", "later"])


def test_the_focus_stays_on_a_row_that_moves(
    busy: tuple[str, str], serve: Callable[..., str], show: Callable[..., Tab]
) -> None:
    tab = show(f"{serve(busy[0])}#/overview")
    tab.evaluate("document.body.append(h('div', { id: 'rows' }))")
    rows = """(names) => morphChildren(document.querySelector("#rows"), names.map((name) =>
        h("p", { "data-key": name }, h("input", { value: name, "aria-label": name }))))"""
    moved = 0
    for order in ("abc", "cab", "bca", "cba", "xcyb", "b", "abc"):
        tab.evaluate(rows, ["a", "b", "c"])
        tab.locator("#rows [aria-label=b]").focus()
        tab.evaluate(rows, list(order))
        assert focused(tab) == "b", order
        assert tab.evaluate("[...document.querySelectorAll('#rows input')].map((each) => each.value).join('')") == order
        moved += 1
    assert moved == 7


def test_a_filter_that_is_left_before_it_is_asked_for_changes_no_other_view(
    busy: tuple[str, str], serve: Callable[..., str], show: Callable[..., Tab]
) -> None:
    tab = show(f"{serve(busy[0])}#/topics")
    sees(tab, "orders")
    tab.evaluate(FILTER_AND_FOCUS, ["orders", "orders"])
    tab.evaluate("location.hash = '#/groups'")
    sees(tab, "warehouse")
    tab.wait_for_timeout(400)  # longer than the page waits after the last key
    assert tab.evaluate("location.hash") == "#/groups"


LEAVE_AS_THE_FILTER_IS_DUE = """() => {
    const search = document.querySelector("[data-search]");
    const later = window.setTimeout;
    let due;
    window.setTimeout = (callback) => (due = callback) && 0;
    search.value = "orders";
    search.dispatchEvent(new Event("input", { bubbles: true }));
    window.setTimeout = later;
    location.hash = "#/groups";
    due();
}"""


def test_a_filter_that_is_due_while_the_view_is_left_changes_no_other_view(
    busy: tuple[str, str], serve: Callable[..., str], show: Callable[..., Tab]
) -> None:
    """The address is that of the next view before the page is told, and the filter's time may be over in between."""
    tab = show(f"{serve(busy[0])}#/topics")
    sees(tab, "orders")
    tab.evaluate(LEAVE_AS_THE_FILTER_IS_DUE)
    sees(tab, "warehouse")
    assert tab.evaluate("location.hash") == "#/groups"
