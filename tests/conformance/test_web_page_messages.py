"""The page's search for messages, in a browser: filters, texts, limits, and the outcomes of transactions."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import fencepost
from fencepost.cli.ui import browsing
from tests.conformance.test_web_page import HTML, browser, hold, prepare, sees, sees_no_more, sees_none, serve, show
from tests.support.brokers import BrokerUnderTest
from tests.support.schema_registry import schema_registry

if TYPE_CHECKING:
    from playwright.sync_api import Page as Tab

__all__ = ["browser", "serve", "show"]

pytestmark = pytest.mark.browser


@pytest.fixture(autouse=True)
def _no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search ends after some seconds with the messages found so far, which on a busy machine can be none."""
    monkeypatch.setattr(browsing, "SECONDS", 60.0)


def picture(tab: Tab, name: str) -> None:
    """Save a screenshot if PAGE_PICTURES names a directory."""
    directory = os.environ.get("PAGE_PICTURES")
    if directory:
        tab.screenshot(path=Path(directory) / f"{name}.png", full_page=True)


def outcome_of(tab: Tab, value: str) -> str:
    """Return the text of the Transaction column of the row with this value."""
    return tab.locator("tbody tr", has_text=value).locator("td[data-label=Transaction]").inner_text()


def test_each_message_has_the_outcome_of_its_transaction(
    broker: BrokerUnderTest, serve: Callable[..., str], show: Callable[..., Tab]
) -> None:
    topic, waiting = broker.name("fates"), broker.name("waits")
    servers = broker.bootstrap_servers
    with fencepost.Admin(servers) as admin:
        admin.create_topic(topic, 1)
    with fencepost.Producer(servers) as plain:
        plain.send(topic, b"plain-before").result()
    with fencepost.Producer(servers, transactional_id=broker.name("ends")) as producer:
        producer.init_transactions()
        for value, commit in ((b"was-committed", True), (b"was-aborted", False)):
            producer.begin_transaction()
            producer.send(topic, value).result()
            (producer.commit_transaction if commit else producer.abort_transaction)()
        prepare(servers, waiting, topic, 1)
        # These two end behind the last stable offset: their markers decide.
        for value, commit in ((b"late-committed", True), (b"late-aborted", False)):
            producer.begin_transaction()
            producer.send(topic, value).result()
            (producer.commit_transaction if commit else producer.abort_transaction)()
    tab = show(f"{serve(servers)}#/messages?name={topic}")
    sees(tab, "plain-before", "late-aborted")
    expected = {
        "plain-before": "no transaction",
        "was-committed": "committed",
        "was-aborted": "aborted",
        "late-committed": "committed",
        "late-aborted": "aborted",
    }
    assert {value: outcome_of(tab, value) for value in expected} == expected
    open_row = tab.locator("tbody tr", has=tab.locator("td[data-label=Value]", has_text=re.compile("^0$")))
    assert open_row.locator("td[data-label=Transaction] .tag").inner_text() == "open"
    picture(tab, "messages-outcomes")

    tab.get_by_label("Records").select_option("1")
    tab.get_by_role("button", name="Search").click()
    sees_no_more(tab, "was-aborted")
    sees(tab, "was-committed", "plain-before", "late-committed")
    with fencepost.Admin(servers) as admin:
        admin.force_terminate_transaction(waiting)


def test_messages_are_found_by_key_value_header_path_offset_and_time(
    broker: BrokerUnderTest, serve: Callable[..., str], show: Callable[..., Tab]
) -> None:
    topic, servers = broker.name("found"), broker.bootstrap_servers
    with fencepost.Admin(servers) as admin, fencepost.Producer(servers) as producer:
        admin.create_topic(topic, 2)
        for number in range(300):
            producer.send(
                topic,
                json.dumps({"customer": {"id": number}, "lines": [{"name": f"pen-{number}"}]}).encode(),
                b"key-%d" % number,
                partition=number % 2,
                timestamp_ms=1_700_000_000_000 + number * 1000,
                headers=[("trace", b"t%d" % number)],
            )
        producer.flush()
    tab = show(f"{serve(servers)}#/messages?name={topic}")
    sees(tab, "50 messages of", "key-299", "key-250")
    sees_no_more(tab, "key-249")
    tab.get_by_role("link", name="older").click()
    sees(tab, "key-249", "key-200")
    tab.get_by_role("link", name="start again").click()
    sees(tab, "key-299")

    def search(**fields: str) -> list[str]:
        for label in ("Offset or time", "Partition", "Key contains", "Value contains", "Header", "JSON path"):
            tab.get_by_label(label).fill(fields.pop(label.split()[0].lower(), ""))
        tab.get_by_label("Start").select_option(fields.pop("start", "newest"))
        with tab.expect_response(lambda response: "/api/messages" in response.url):
            tab.get_by_role("button", name="Search").click()
        sees_none(tab, "main[aria-busy]")
        sees(tab, re.compile(r"\d+ messages? of"))
        return tab.locator("td[data-label=Key]").all_inner_texts()

    assert search(key="key-17") == [f"key-{number}" for number in (*range(179, 169, -1), 17)]
    assert search(value="pen-42") == ["key-42"]
    assert search(header="trace=t7", partition="1", start="oldest")[:2] == ["key-7", "key-71"]
    assert search(json="customer.id = 5") == ["key-5"]
    assert search(json="lines[0].name = pen-9") == ["key-9"]
    assert search(start="offset", offset="149", partition="0") == ["key-298"]
    assert search(start="time", offset="1700000298500") == ["key-299"]
    picture(tab, "messages-found")
    tab.get_by_role("link", name="1 : 149").click()
    sees(tab, "partition 1, offset 149", '"id": 299', "trace", "t299")
    picture(tab, "message")


def test_an_offset_without_a_message_is_no_damage(
    broker: BrokerUnderTest, serve: Callable[..., str], show: Callable[..., Tab]
) -> None:
    """It may be deleted or not written yet, which the page says without a complaint about the leader."""
    topic, servers = broker.name("gone"), broker.bootstrap_servers
    with fencepost.Admin(servers) as admin, fencepost.Producer(servers) as producer:
        admin.create_topic(topic, 1)
        for number in range(4):
            producer.send(topic, b"%d" % number).result()
        admin.delete_records({(topic, 0): 2})
    page = serve(servers)
    for offset in (0, 4, 5, 2**40):
        tab = show(f"{page}#/message?name={topic}&partition=0&from=offset&at={offset}")
        sees(tab, "There is no message at this offset", "deleted")
        sees_none(tab, ".hot")
    sees(show(f"{page}#/message?name={topic}&partition=0&from=offset&at=2"), "offset 2", "Value")


def test_a_view_that_waits_for_its_answer_is_marked(
    broker: BrokerUnderTest, serve: Callable[..., str], show: Callable[..., Tab]
) -> None:
    topic, servers = broker.name("waits"), broker.bootstrap_servers
    with fencepost.Admin(servers) as admin, fencepost.Producer(servers) as producer:
        admin.create_topic(topic, 1)
        for written in (b"first", b"second", b"third"):
            producer.send(topic, b"x", written)
    address = f"{serve(servers)}#/messages?name={topic}"
    tab = show(address)
    sees(tab, "first", "second", "third")
    sees_none(tab, "main[aria-busy]")
    held = hold(tab, "**/api/messages?*key=second*")
    for key in ("second", "third"):
        tab.get_by_label("Key contains").fill(key)
        with tab.expect_request(re.compile(f"key={key}")):
            tab.get_by_role("button", name="Search").click()
        if key == "second":
            sees(tab, "first", "third")
            sees(tab, "looking", where="#pulse")
            assert tab.locator("main[aria-busy]").count() == 1
    sees_no_more(tab, "second")
    sees_none(tab, "main[aria-busy]")
    assert len(held) == 1
    with tab.expect_response(lambda response: "key=second" in response.url):
        held.pop().continue_()
    tab.get_by_label("Key contains").fill("second")
    tab.get_by_role("button", name="Search").click()
    sees(tab, "looking", where="#pulse")
    assert tab.locator("td[data-label=Key]").all_inner_texts() == ["third"]
    held.pop().abort()
    sees(tab, "does not answer", where="#notices")
    sees_none(tab, "main[aria-busy]")


def test_odd_messages_are_shown_as_what_they_are(
    broker: BrokerUnderTest, serve: Callable[..., str], show: Callable[..., Tab]
) -> None:
    topic, empty, servers = broker.name("odd"), broker.name("empty"), broker.bootstrap_servers
    with (
        fencepost.Admin(servers) as admin,
        fencepost.Producer(servers, max_request_size=8_000_000, transactional_id=broker.name("odd")) as producer,
    ):
        admin.create_topic(topic, 1, configs={"max.message.bytes": "8000000"})
        admin.create_topic(empty, 1)
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"\x00\x01\xff", b"binary")
        producer.send(topic, HTML.encode(), HTML.encode(), headers=[(HTML, None), ("none", b"\xfe")])
        producer.send(topic, None, b"tombstone")
        producer.send(topic, b"x" * 5_000_000, b"large")
        producer.send(topic, b"", b"nothing")
        producer.commit_transaction()
        producer.begin_transaction()
        producer.send(topic, b"never", b"tail").result()
        producer.abort_transaction()
    address = serve(servers)
    tab = show(f"{address}#/messages?name={topic}")
    sees(tab, "00 01 ff", HTML, "tombstone", "null", "cut; the whole has 4.8 MiB", "tail")
    assert tab.locator("main script, main b").count() == 0
    picture(tab, "messages-odd")
    tab.goto(f"{address}#/message?name={topic}&partition=0&from=offset&at=3")
    sees(tab, "cut; the whole has 4.8 MiB", "text, 4.8 MiB")
    assert len(tab.locator("main").inner_text()) < 70_000
    tab.goto(f"{address}#/message?name={topic}&partition=0&from=offset&at=5")
    sees(tab, "There is no message at this offset")
    with fencepost.Admin(servers) as admin:
        admin.delete_records({(topic, 0): 4})
    tab.goto(f"{address}#/messages?name={topic}&from=offset&at=0")
    sees(tab, "nothing", "tail")
    tab.goto(f"{address}#/messages?name={empty}")
    sees(tab, "There is no message here.")
    tab.goto(f"{address}#/messages?name={empty}&partition=7")
    sees(tab, "has no partition 7", where="#notices")
    tab.goto(f"{address}#/messages?name={empty}&path=nonsense")
    sees(tab, "is not of the form", where="#notices")
    tab.goto(f"{address}#/messages?name=not-there")
    sees(tab, "There is no such thing in the cluster.")


def test_a_schema_registry_decodes_messages(
    broker: BrokerUnderTest, serve: Callable[..., str], show: Callable[..., Tab]
) -> None:
    confluent: Any = pytest.importorskip("confluent_kafka.schema_registry.avro")
    registry_client: Any = pytest.importorskip("confluent_kafka.schema_registry")
    topic, servers = broker.name("avro"), broker.bootstrap_servers
    with schema_registry() as url:
        client = registry_client.SchemaRegistryClient({"url": url})
        schema = '{"type": "record", "name": "Order", "fields": [{"name": "total", "type": "int"}]}'
        encoder = fencepost.schemas.Encoder(confluent.AvroSerializer(client, schema))
        with fencepost.Producer(servers) as producer:
            encoder.send(producer, topic, {"total": 4711}).result()
            producer.send(topic, b"no schema").result()
        tab = show(f"{serve(servers, schema_registry=url)}#/messages?name={topic}&form=registry")
        sees(tab, '"total": 4711', "there is no schema id in front", "no schema")
        tab.get_by_label("JSON path").fill("total = 4711")
        tab.get_by_role("button", name="Search").click()
        sees_no_more(tab, "no schema")
        sees(tab, '"total": 4711')
        assert tab.locator("td[data-label=Value]").count() == 1
        picture(tab, "messages-registry")
