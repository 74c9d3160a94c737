"""The page about several clusters, in a browser: each with its own principal and rights, and none stops another."""

from __future__ import annotations

import contextlib
import logging
import re
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

import fencepost
from fencepost.cli.main import main
from fencepost.cli.ui import cluster_monitor, command
from fencepost.cli.ui.cluster_monitor import PageCluster
from fencepost.cli.ui.server import Page
from fencepost.protocol.codes import ErrorCode
from tests.conformance.test_web_page import browser, hold, looks_at, sees, sees_no_more, show
from tests.conformance.test_web_page_changes import change
from tests.support.axe import violations
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page as Tab

    from fencepost.broker.embedded import Broker

__all__ = ["browser", "show"]

pytestmark = pytest.mark.browser

RIGHTS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}
NOBODY = "127.0.0.1:1"


def login(user: str) -> dict[str, str]:
    return {"security.protocol": "SASL_PLAINTEXT", "sasl.username": user, "sasl.password": user}


@pytest.fixture
def several(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Page, Broker, Broker]]:
    """A page about `open`, `guarded` (as alice, who may see one topic) and `dead`; the first two brokers."""
    monkeypatch.setattr(cluster_monitor, "CALL_MS", 1000)
    with fencepost.Broker() as first, fencepost.Broker(RIGHTS, users={"admin": "admin", "alice": "alice"}) as second:
        clusters = [
            PageCluster({"bootstrap.servers": first.bootstrap_servers}, "open", allow_actions=True),
            PageCluster({"bootstrap.servers": second.bootstrap_servers, **login("alice")}, "guarded"),
            PageCluster({"bootstrap.servers": NOBODY}, "dead"),
        ]
        page = Page(clusters, every_s=0.2)
        try:
            yield page, first, second
        finally:
            page.close()


def test_a_person_turns_from_cluster_to_cluster(
    several: tuple[Page, Broker, Broker], show: Callable[..., Tab], caplog: pytest.LogCaptureFixture
) -> None:
    page, first, second = several
    caplog.set_level(logging.WARNING, "fencepost.ui")
    as_admin = {"bootstrap.servers": second.bootstrap_servers, **login("admin")}
    with fencepost.Admin(first.bootstrap_servers) as admin:
        admin.create_topic("of-open", 1)
    with fencepost.Admin.from_config(as_admin) as admin:
        admin.create_topic("of-guarded", 1)
    tab = show(page.acting_address, viewport={"width": 420, "height": 800}, reduced_motion="reduce")
    sees(tab, "open", "guarded", "dead", "away", "alice", "no findings", "allowed")
    assert violations(tab) == []
    assert tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0

    tab.get_by_role("link", name="open").click()
    sees(tab, "Brokers")
    tab.keyboard.press("3")
    sees(tab, "of-open")
    change(tab, "Create topic", name="by-hand", partitions="1")
    sees(tab, "by-hand")
    assert "as the principal of the settings on cluster open: Create topic by-hand" in caplog.text
    tab.get_by_role("link", name="by-hand").click()
    tab.get_by_role("button", name="Delete topic").click()
    sees(tab, "Cluster open", where="dialog")

    tab.evaluate("location.hash = '#/topics?cluster=guarded'")  # as the Back button does, with the question open
    sees_no_more(tab, "by-hand")
    assert not tab.locator("dialog").is_visible()
    sees(tab, "None is visible, and not all is known.")
    tab.evaluate("location.hash = '#/topic?cluster=guarded&name=of-guarded'")  # which alice may not see
    sees(tab, "It is not visible, and not all is known.")
    tab.evaluate("location.hash = '#/topics?cluster=guarded'")
    sees(tab, "None is visible, and not all is known.")
    assert tab.get_by_role("button").count() == 0
    sees(tab, "as alice", where="#servers")

    tab.get_by_label("Cluster").select_option("dead")
    sees(tab, "The cluster is away", NOBODY, where="#notices")
    sees_no_more(tab, "None is visible, and not all is known.")
    tab.get_by_label("Cluster").select_option("open")
    sees(tab, "by-hand")
    sees(tab, "live", where="#pulse")
    assert tab.url.endswith("#/topics?cluster=open")
    tab.reload()
    sees(tab, "by-hand")
    assert tab.title() == "Topics · open · Fencepost"
    with fencepost.Admin.from_config(as_admin) as admin:
        admin.delete_topics(["of-guarded"])


@pytest.mark.parametrize("width", [420, 800, 1400])
def test_the_whole_address_of_a_cluster_is_shown(width: int, show: Callable[..., Tab]) -> None:
    servers = ",".join(f"kafka-{number}.warehouse.example.internal:9092" for number in range(1, 4))
    both = [PageCluster({"bootstrap.servers": servers}, name) for name in ("warehouse-of-the-north", "other")]
    for clusters, query in ((both[:1], ""), (both, "?cluster=warehouse-of-the-north")):
        with contextlib.closing(Page(clusters, every_s=0.2)) as page:
            tab = show(f"{page.address}#/overview{query}", viewport={"width": width, "height": 800})
            sees(tab, servers, where="#servers")
            cut = tab.locator("#servers").evaluate(
                "(each) => [each.scrollWidth - each.clientWidth, each.scrollHeight - each.clientHeight]"
            )
            assert max(cut) <= 0
            assert tab.locator("#servers").evaluate("(each) => each.offsetWidth") > 200
            assert tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_note_does_not_look_like_an_alarm(show: Callable[..., Tab], scheme: str) -> None:
    """The note: the page describes the transactions in 100 partitions, and one is open in more."""
    partitions = 105
    with fencepost.Broker() as noted, fencepost.Broker() as failing:
        failing.faults.fail("ListGroups", ErrorCode.GROUP_AUTHORIZATION_FAILED, times=None)
        clusters = [
            PageCluster({"bootstrap.servers": noted.bootstrap_servers}, "noted"),
            PageCluster({"bootstrap.servers": failing.bootstrap_servers}, "failing"),
        ]
        with (
            contextlib.closing(Page(clusters, every_s=0.2)) as page,
            fencepost.Admin(noted.bootstrap_servers) as admin,
            fencepost.Producer(noted.bootstrap_servers, transactional_id="wide") as producer,
        ):
            admin.create_topic("wide", partitions)
            producer.init_transactions()
            producer.begin_transaction()
            for sent in [producer.send("wide", b"v", partition=number) for number in range(partitions)]:
                sent.result(60)
            tab = show(
                page.address, viewport={"width": 420, "height": 800}, color_scheme=scheme, reduced_motion="reduce"
            )
            root = tab.url.partition("#")[0]
            sees(tab, "1 note", "1 question without an answer")
            alarm = colour(tab, "1 question without an answer")
            assert colour(tab, "1 note") != alarm
            assert violations(tab) == []
            for name, code, severity in (("failing", "FP002", "unknown"), ("noted", "FP004", "note")):
                looks_at(tab, f"{root}#/overview?cluster={name}")
                sees(tab, "To do:", severity, where=".attention")
                sees(tab, "not all is known", where="#notices")
                assert (colour(tab, code) == alarm) == (name == "failing")
                edge = tab.locator(".notice").first.evaluate("(each) => getComputedStyle(each).borderLeftColor")
                assert (edge == alarm) == (name == "failing")
                assert violations(tab) == []
            producer.abort_transaction()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_error_looks_worse_than_a_warning(show: Callable[..., Tab], scheme: str) -> None:
    """An error has a filled code. The warning: a group without members is behind."""
    with fencepost.Broker() as broker, fencepost.Admin(broker.bootstrap_servers) as admin:
        admin.create_topic("t", 1)
        with fencepost.Producer(broker.bootstrap_servers) as producer:
            producer.send("t", b"v", partition=0).result(60)
        admin.alter_group_offsets("idle", {("t", 0): 0})
        with (
            contextlib.closing(
                Page([PageCluster({"bootstrap.servers": broker.bootstrap_servers})], every_s=0.2)
            ) as page,
            broker.faults.fail("ListTransactions", ErrorCode.COORDINATOR_NOT_AVAILABLE, times=None),
        ):
            tab = show(page.address, viewport={"width": 420, "height": 800}, color_scheme=scheme)
            sees(tab, "FP301", "FP502", where=".attention")
            fill = "(each) => getComputedStyle(each).backgroundColor"
            codes = {code: tab.locator(".attention").get_by_text(code, exact=True) for code in ("FP301", "FP502")}
            assert codes["FP301"].evaluate(fill) == colour(tab, "FP502")
            assert codes["FP502"].evaluate(fill) == "rgba(0, 0, 0, 0)"
            assert tab.locator(".notice").count() == 1
            tops = {
                what: tab.locator(what).first.evaluate("(each) => each.offsetTop") for what in (".attention", ".panel")
            }
            assert tops[".attention"] < tops[".panel"], "the chart comes after the findings"
            assert violations(tab) == []


def colour(tab: Tab, text: str) -> str:
    """Return the colour of the text in the main part of the page."""
    found: str = tab.locator("main").get_by_text(text, exact=True).evaluate("(each) => getComputedStyle(each).color")
    return found


def test_a_question_that_was_left_before_its_answer_does_not_come_up(
    several: tuple[Page, Broker, Broker], show: Callable[..., Tab]
) -> None:
    page, first, _ = several
    with fencepost.Admin(first.bootstrap_servers) as admin:
        admin.create_topic("stays", 1)
    tab = show(page.acting_address)
    held = hold(tab, "**/do/look-before-change*")
    root = tab.url.partition("#")[0]

    def ask(count: int) -> None:
        looks_at(tab, f"{root}#/topic?name=stays&cluster=open")
        tab.get_by_role("button", name="Delete topic").click()
        until(lambda: tab.evaluate("1") == 1 and len(held) == count)

    def answer(count: int) -> None:
        with tab.expect_response("**/do/look-before-change*"):
            held[count - 1].continue_()
        tab.evaluate("new Promise((resolve) => setTimeout(resolve, 100))")

    ask(1)
    tab.evaluate("location.hash = '#/topics?cluster=guarded'")
    sees(tab, "None is visible, and not all is known.")
    answer(1)
    assert not tab.locator("dialog").is_visible()

    ask(2)  # and another question in the same cluster, whose form is not overwritten
    tab.get_by_role("button", name="Add partitions").click()
    tab.locator("dialog [name=partitions]").fill("7")
    answer(2)
    assert tab.locator("dialog [name=partitions]").input_value() == "7"
    tab.get_by_role("button", name="Leave it as it is").click()

    ask(3)
    answer(3)
    sees(tab, "Cluster open", "stays", where="dialog")


def test_the_outcome_of_a_change_is_told_also_to_a_person_who_has_turned_away(
    several: tuple[Page, Broker, Broker], show: Callable[..., Tab]
) -> None:
    tab = show(several[0].acting_address)
    held = hold(tab, "**/do/change*")
    tab.goto(f"{tab.url.partition('#')[0]}#/topics?cluster=open")
    tab.get_by_role("button", name="Create topic").click()
    tab.locator("dialog [name=name]").fill("told")
    tab.get_by_role("button", name="Continue").click()
    tab.get_by_role("button", name="Do it").click()
    until(lambda: tab.evaluate("1") == 1 and len(held) == 1)
    tab.evaluate("location.hash = '#/topics?cluster=guarded'")
    sees(tab, "None is visible, and not all is known.")
    assert not tab.locator("dialog").is_visible()
    held[0].continue_()
    sees(tab, "Done", "Cluster open", "told", where="dialog")


def fetched(address: str) -> str:
    with urllib.request.urlopen(address, timeout=30) as answer:  # noqa: S310 - our own
        text: str = answer.read().decode()
        return text


def test_metrics_have_the_name_of_the_cluster(several: tuple[Page, Broker, Broker]) -> None:
    def answers() -> Mapping[str, float]:
        families = text_string_to_metric_families(fetched(f"{several[0].address}metrics"))
        samples = [each for family in families for each in family.samples if each.name == "fencepost_cluster_answers"]
        return {each.labels["cluster"]: each.value for each in samples}

    until(lambda: answers() == {"open": 1, "guarded": 1, "dead": 0})


def test_a_change_needs_the_name_of_a_cluster_that_may_be_changed(several: tuple[Page, Broker, Broker]) -> None:
    page = several[0]

    def status(query: str) -> tuple[int, str]:
        headers = {"X-Fencepost-Token": page.token, "Content-Type": "application/json"}
        body = b'{"change": "create-topic", "name": "made"}'
        request = urllib.request.Request(f"{page.address}do/change{query}", body, headers)  # noqa: S310 - our own
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - our own
                return answer.status, ""
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    assert status("")[0] == 404
    assert "cluster is missing" in status("")[1]
    assert status("?cluster=nobody") == (404, '{"error":"there is no cluster \'nobody\'"}')
    assert status("?cluster=guarded")[0] == 403
    assert status("?cluster=open")[0] == 200


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[PageCluster]:
    """The clusters of pages that the command starts; none is really started."""
    seen: list[PageCluster] = []

    class NoPage:
        def __init__(self, clusters: list[PageCluster], *_: object, **__: object) -> None:
            seen.extend(clusters)
            raise OSError("not started here")

    monkeypatch.setattr(command, "Page", NoPage)
    return seen


def test_clusters_are_files(started: list[PageCluster], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FENCEPOST_SASL_PASSWORD", "of another cluster")
    (tmp_path / "a").write_text(
        "bootstrap.servers=a:1\nsecurity.protocol=SASL_PLAINTEXT\nsasl.username=u\nsasl.password=p\n"
    )
    (tmp_path / "b").write_text("bootstrap.servers=b:1\n")
    words = ["ui", "--cluster", f"a={tmp_path}/a", "--cluster", f"b={tmp_path}/b", "--allow-actions-on", "b"]
    with pytest.raises(SystemExit):
        main([*words, "--schema-registry", "a=http://registry.example/?a=b"])
    assert [(each.name, each.allow_actions, each.schema_registry) for each in started] == [
        ("a", False, "http://registry.example/?a=b"),
        ("b", True, None),
    ]
    assert [dict(each.settings).get("sasl.password") for each in started] == ["p", None]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--cluster", "a"], "not NAME=FILE"),
        (["--cluster", "a=FILE", "--cluster", "a=FILE"], "given twice"),
        (["--cluster", "a=FILE", "-b", "x:1"], "leave out -b"),
        (["--cluster", "a b=FILE"], "letters, digits"),
        (["--cluster", "a=EMPTY"], "has no bootstrap.servers"),
        (["--cluster", "a=/nowhere"], "nowhere"),
        (["--cluster", "a=FILE", "--schema-registry", "http://registry.example"], "not NAME=URL"),
        (["--cluster", "a=FILE", "--schema-registry", "b=http://registry.example"], "'b' is the name of no --cluster"),
        (["--cluster", "a=FILE", "--allow-actions-on", "b"], "'b' is the name of no --cluster"),
        (["--allow-actions-on", "b"], "needs --cluster"),
        (["--cluster", "a=FILE", "--allow-actions-on", "a", "--host", "0.0.0.0"], "has no login"),  # noqa: S104
        (
            ["--schema-registry", "http://registry.example", "--schema-registry", "http://second.example"],
            "one registry",
        ),
    ],
)
def test_clusters_that_cannot_be_are_refused(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    (tmp_path / "file").write_text("bootstrap.servers=a:1\n")
    (tmp_path / "empty").write_text("")
    given = [word.replace("FILE", f"{tmp_path}/file").replace("EMPTY", f"{tmp_path}/empty") for word in words]
    with pytest.raises(SystemExit) as ended:
        main(["ui", *given])
    assert ended.value.code in (1, 2)
    assert message in re.sub(r"\s+", " ", capsys.readouterr().err)
