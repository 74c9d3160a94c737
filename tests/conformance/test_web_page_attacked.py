"""The page under attack: names that hide, records that unpack to a lot, brokers that stand still, hasty persons."""

from __future__ import annotations

import json
import signal
import threading
import tracemalloc
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

import fencepost
from fencepost.cli.ui import cluster_monitor
from fencepost.cli.ui.cluster_monitor import PageCluster
from fencepost.cli.ui.server import Page
from fencepost_lab.torture.broker_process import BrokerProcess
from tests.conformance.test_web_page import browser, sees, serve, show
from tests.support.standing_still import stand_still
from tests.support.waiting import until

if TYPE_CHECKING:
    from playwright.sync_api import Page as Tab

__all__ = ["browser", "serve", "show"]

pytestmark = pytest.mark.browser

TURNED = "pay\u202eroll\u200b-\u2066x"
SHOWN = r"pay\u{202e}roll\u{200b}-\u{2066}x"


def asked(page: Page, path: str, body: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
    """Status and answer."""
    headers = {"X-Fencepost-Token": page.token, "Content-Type": "application/json"}
    text = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(page.address + path, text, headers)  # noqa: S310 - our own
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - our own
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_a_name_cannot_look_like_another_one(serve: Callable[..., str], show: Callable[..., Tab]) -> None:
    with fencepost.Broker() as broker:
        servers = broker.bootstrap_servers
        with fencepost.Admin(servers) as admin:
            admin.create_topic("t", 1)
            admin.alter_group_offsets(TURNED, {("t", 0): 0})
            admin.alter_group_offsets("constructor", {("t", 0): 0})
            tab = show(serve(servers, allow_actions=True))
            root = tab.url.partition("#")[0]
            for hidden in ("constructor", "toString", "__proto__"):
                tab.goto(f"{root}#/{hidden}")
                sees(tab, "Brokers")
            tab.goto(f"{root}#/groups")
            sees(tab, SHOWN, "constructor")
            tab.get_by_role("link", name=SHOWN).click()
            sees(tab, SHOWN, "t-0")
            tab.get_by_role("button", name="Reset offsets").click()
            tab.get_by_role("button", name="Continue").click()
            sees(tab, SHOWN, where="dialog")
            tab.locator("dialog [name=confirm]").fill(SHOWN)
            tab.get_by_role("button", name="Do it").click()
            sees(tab, "reset 1 partition", where="dialog")


def test_a_search_does_not_unpack_a_whole_topic_at_once() -> None:
    size, count = 8_000_000, 16
    with fencepost.Broker() as broker:
        servers = broker.bootstrap_servers
        with fencepost.Admin(servers) as admin:
            admin.create_topic("packed", count)
        with fencepost.Producer(servers, compression_type="zstd", max_request_size=2 * size) as producer:
            for number in range(count):
                producer.send("packed", b"a" * size, partition=number).result()
        page = Page([PageCluster({"bootstrap.servers": servers})])
        try:
            tracemalloc.start()
            status, found = asked(page, "api/messages?name=packed")
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            page.close()
    assert status == 200
    assert {row["value"]["bytes"] for row in found["view"]["rows"]} == {size}
    assert len(found["view"]["rows"]) == count or not found["view"]["is_whole"]
    assert peak < 3 * 4 * size, "four partitions at a time, each with its decompressed batch and its value"


@pytest.fixture
def standing(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Page, BrokerProcess]]:
    """A page about a broker that is stopped by a signal after the first look."""
    monkeypatch.setattr(cluster_monitor, "CALL_MS", 3000)
    monkeypatch.setattr(cluster_monitor, "TURN_S", 0.2)
    running = BrokerProcess()
    running.start()
    page = Page([PageCluster({"bootstrap.servers": running.bootstrap_servers}, allow_actions=True)], every_s=600)
    try:
        until(lambda: asked(page, "api/overview")[1]["seen_ms"] is not None)
        assert running.pid is not None
        stand_still(running.pid)
        yield page, running
    finally:
        running.send(signal.SIGCONT)
        page.close()
        running.stop()


def test_questions_to_a_broker_that_stands_still_do_not_wait_for_each_other(
    standing: tuple[Page, BrokerProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    page, running = standing
    waiting: list[int] = []
    lock = threading.Lock()
    look_at = page._monitors[""]._collector
    real = look_at.transaction

    async def counted(name: str) -> Any:
        with lock:
            waiting.append(1)
        return await real(name)

    monkeypatch.setattr(look_at, "transaction", counted)
    with ThreadPoolExecutor(12) as pool:
        change = pool.submit(asked, page, "do/change", {"change": "create-topic", "name": "slow"})
        until(page._monitors[""]._acting.locked)
        second = asked(page, "do/change", {"change": "create-topic", "name": "second"})
        looks = [pool.submit(asked, page, f"api/transaction?name=id{number}") for number in range(8)]
        until(lambda: len(waiting) == 8)
        assert asked(page, "api/overview")[0] == 200
        running.send(signal.SIGCONT)
        assert {look.result()[0] for look in looks} <= {200, 503}
        assert change.result()[0] == 200
    assert second == (
        503,
        {"error": "another change of this cluster is being made; nothing was changed, try again later"},
    )
    with fencepost.Admin(running.bootstrap_servers) as admin:
        assert {"slow"} == {"slow", "second"} & set(admin.list_topics())


def test_a_cluster_that_needs_longer_is_given_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_monitor, "CALL_MS", 300)
    running = BrokerProcess()
    running.start()
    assert running.pid is not None
    stand_still(running.pid)
    page = Page([PageCluster({"bootstrap.servers": running.bootstrap_servers})], every_s=0.1)
    try:
        until(lambda: asked(page, "api/overview")[1]["away"] is not None)
        until(lambda: page._monitors[""]._call_ms >= 1200)
        running.send(signal.SIGCONT)
        until(lambda: asked(page, "api/overview")[1]["seen_ms"] is not None)
    finally:
        running.send(signal.SIGCONT)
        page.close()
        running.stop()


def test_many_who_ask_for_one_thing_get_one_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when it fails: nobody waits for ever."""
    with fencepost.Broker() as broker:
        page = Page([PageCluster({"bootstrap.servers": broker.bootstrap_servers})], every_s=600)
        try:
            until(lambda: asked(page, "api/overview")[1]["seen_ms"] is not None)

            async def broken(_: str) -> Any:
                raise ZeroDivisionError

            monkeypatch.setattr(page._monitors[""]._collector, "transaction", broken)
            with ThreadPoolExecutor(4) as pool:
                statuses = list(pool.map(lambda _: _status(page), range(4)))
            assert statuses == [500] * 4
        finally:
            page.close()


def _status(page: Page) -> int:
    try:
        with urllib.request.urlopen(f"{page.address}api/transaction?name=a", timeout=60) as answer:  # noqa: S310 - our own
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
