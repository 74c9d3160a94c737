"""Changes on the page, in a browser: asked for by name, refused with the broker's reason, and logged."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

import fencepost
from fencepost.client.net.list_offsets import LATEST
from tests.conformance.test_web_page import browser, sees, serve, show
from tests.conformance.test_web_page_messages import picture
from tests.support.brokers import BrokerUnderTest

if TYPE_CHECKING:
    from playwright.sync_api import Page as Tab

__all__ = ["browser", "serve", "show"]

pytestmark = pytest.mark.browser


def change(tab: Tab, button: str, confirm: str = "", answer: str = "Done", **fields: str) -> None:
    """Press a button, fill its form, confirm, and close the answer."""
    tab.get_by_role("button", name=button).click()
    dialog = tab.locator("dialog")
    for name, value in fields.items():
        control = dialog.locator(f"[name={name}]")
        control.select_option(value) if control.evaluate("(e) => e.tagName") == "SELECT" else control.fill(value)
    if fields:
        dialog.get_by_role("button", name="Continue").click()
    go = dialog.get_by_role("button", name="Do it")
    go.wait_for()
    if confirm:
        assert go.is_disabled()
        dialog.locator("[name=confirm]").fill(confirm)
    go.click()
    sees(tab, answer, where="dialog")
    dialog.get_by_role("button", name="Close").click()


def test_topics_records_and_offsets_are_changed(
    broker: BrokerUnderTest,
    serve: Callable[..., str],
    show: Callable[..., Tab],
    caplog: pytest.LogCaptureFixture,
) -> None:
    servers, topic, group = broker.bootstrap_servers, broker.name("made"), broker.name("group")
    address = serve(servers, allow_actions=True)
    caplog.set_level(logging.WARNING, "fencepost.ui")
    with fencepost.Admin(servers) as admin:
        tab = show(address)
        root = address.partition("#")[0]
        tab.get_by_role("link", name="Topics").first.click()
        change(tab, "Create topic", name=topic, partitions="2", settings="retention.ms=3600000")
        assert len(admin.describe_topics([topic])[topic].partitions) == 2
        assert admin.describe_configs(topic)["retention.ms"] == "3600000"

        tab.goto(f"{root}#/topic?name={topic}")
        change(tab, "Add partitions", partitions="3")
        change(tab, "Add partitions", partitions="1", answer="Not done")
        assert len(admin.describe_topics([topic])[topic].partitions) == 3
        change(tab, "Write a record", key="k", value="plain", headers="trace=t1", partition="2")
        change(tab, "Write a record", value="in-transaction", partition="2", transactional_id=broker.name("page"))
        tab.goto(f"{root}#/messages?name={topic}&partition=2")
        sees(tab, "plain", "trace", "in-transaction", "committed")

        tab.goto(f"{root}#/settings?name={topic}")
        change(tab, "Change a setting", setting="retention.ms", value="7200000")
        sees(tab, "7200000")
        change(tab, "Change a setting", setting="no.such.setting", value="1", answer="Not done")

        partition = fencepost.TopicPartition(topic, 2)
        admin.alter_group_offsets(group, {partition: 0})
        tab.goto(f"{root}#/group?name={group}")
        change(tab, "Reset offsets", confirm=group, to="latest")
        assert admin.group_offsets(group)[partition].offset == admin.list_offsets({partition: LATEST})[partition].offset
        change(tab, "Reset offsets", confirm=group, to="offset", at="1")
        assert admin.group_offsets(group)[partition].offset == 1
        with fencepost.Consumer(servers, group_id=group) as consumer:
            consumer.subscribe([topic])
            while not consumer.assignment():
                consumer.poll(500)
            change(tab, "Reset offsets", confirm=group, to="earliest", answer="has members; stop them first")

        tab.goto(f"{root}#/access")
        client = broker.name("client")
        change(tab, "Set a quota", client_id=client, quota="producer_byte_rate", value="1048576")
        sees(tab, client, "1,048,576")
        picture(tab, "access")
        change(tab, "Set a quota", client_id=client, quota="producer_byte_rate")

        tab.goto(f"{root}#/topic?name={topic}")
        change(tab, "Delete topic", confirm=topic)
        sees(tab, "There is no such thing in the cluster.")
        assert topic not in admin.list_topics()
    asked = [record.getMessage() for record in caplog.records]
    assert any(f"Delete topic {topic}" in line and "as the principal of the settings" in line for line in asked)


def test_rights_users_and_their_refusals(serve: Callable[..., str], show: Callable[..., Tab]) -> None:
    rights = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
    }

    def login(user: str) -> dict[str, Any]:
        return {"security_protocol": "SASL_PLAINTEXT", "sasl_username": user, "sasl_password": user}

    with fencepost.Broker(rights, users={"admin": "admin", "alice": "alice"}) as broker:
        servers = broker.bootstrap_servers
        address = serve(servers, allow_actions=True, login=login("admin"))
        tab = show(address)
        tab.get_by_role("link", name="Access").click()
        change(tab, "Add a rule", principal="User:alice", operation="READ", resource="TOPIC", resource_name="orders")
        sees(tab, "User:alice", "TOPIC orders")
        change(tab, "Set a password", user="bob", mechanism="SCRAM_SHA_512", password="a long secret")  # noqa: S106
        sees(tab, "bob")
        picture(tab, "access-rules")
        change(tab, "Delete User:alice", confirm="User:alice")
        sees(tab, "There is no rule.")
        change(tab, "Delete bob", confirm="bob")

        other = show(serve(servers, allow_actions=True, login=login("alice")))
        other.get_by_role("link", name="Access").click()
        sees(other, "CLUSTER_AUTHORIZATION_FAILED")
        other.get_by_role("link", name="Topics").first.click()
        change(other, "Create topic", name="hers", answer="TOPIC_AUTHORIZATION_FAILED")


def test_disks(broker: BrokerUnderTest, serve: Callable[..., str], show: Callable[..., Tab]) -> None:
    servers, topic = broker.bootstrap_servers, broker.name("large")
    with fencepost.Producer(servers, compression_type="none") as producer:
        producer.send(topic, bytes(300_000)).result()
    tab = show(f"{serve(servers)}#/disks?q={topic}")
    sees(tab, topic, "293.", "KiB", "GiB")
    picture(tab, "disks")
