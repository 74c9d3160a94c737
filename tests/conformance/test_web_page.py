"""`fencepost ui` in a browser: each view says what the cluster is like, and a person can act by it."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

import fencepost
from fencepost.cli.ui import cluster_monitor
from fencepost.cli.ui.cluster_monitor import PageCluster
from fencepost.cli.ui.server import Page
from fencepost.client.admin import Acl, AclOperation, ResourceType
from fencepost.client.net.list_offsets import LATEST
from fencepost.client.types import Isolation
from fencepost_lab.torture.broker_process import BrokerProcess
from tests.spark.plan_by_hand import Bench
from tests.support.brokers import BrokerUnderTest
from tests.support.chromium import chromium
from tests.support.markers import wait_for_markers
from tests.support.sink_abilities import KEEPING
from tests.support.waiting import until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Route
    from playwright.sync_api import Page as Tab

    from fencepost.broker.embedded import Broker

pytestmark = pytest.mark.browser

PATIENCE_MS = 30_000
HTML = "<script>document.title='owned'</script><b>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as instance:
        yield instance


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """Serves the page about a cluster; its address, with the token where it may change things."""
    pages = []

    def start(servers: str, **options: Any) -> str:
        login = {name.replace("_", "."): value for name, value in options.pop("login", {}).items()}
        cluster = PageCluster({"bootstrap.servers": servers, **login}, **options)
        pages.append(Page([cluster], every_s=0.2))
        return pages[-1].acting_address if cluster.allow_actions else pages[-1].address

    yield start
    for page in pages:
        page.close()


@pytest.fixture
def show(browser: Browser) -> Iterator[Callable[..., Tab]]:
    """Opens an address in a fresh tab, in which nothing may fail."""
    contexts = []
    failed: list[str] = []

    def open_tab(address: str, **look: Any) -> Tab:
        contexts.append(browser.new_context(**look))
        tab = contexts[-1].new_page()
        tab.set_default_timeout(PATIENCE_MS)
        tab.on("pageerror", lambda error: failed.append(str(error)))
        tab.goto(address)
        return tab

    yield open_tab
    for context in contexts:
        context.close()
    assert failed == []


def sees(tab: Tab, *texts: str | re.Pattern[str], where: str = "main") -> None:
    """Each of the texts comes to stand there."""
    from playwright.sync_api import expect

    for text in texts:
        expect(tab.locator(where)).to_contain_text(text, timeout=PATIENCE_MS)


def sees_no_more(tab: Tab, text: str, where: str = "main") -> None:
    from playwright.sync_api import expect

    expect(tab.locator(where)).not_to_contain_text(text, timeout=PATIENCE_MS)


def looks_at(tab: Tab, address: str) -> None:
    """Go to a view and wait for it. The view before it stays on the page until the server has answered."""
    tab.goto(address)
    until(lambda: bool(tab.evaluate("shown === address(route().view, route().query)")))


def hold(tab: Tab, address: str) -> list[Route]:
    """Hold the page's requests to an address; they come into the list."""
    held: list[Route] = []

    def keep(route: Route) -> None:
        held.append(route)

    tab.route(address, keep)
    return held


def sees_none(tab: Tab, what: str) -> None:
    from playwright.sync_api import expect

    expect(tab.locator(what)).to_have_count(0, timeout=PATIENCE_MS)


def prepare(servers: str, transactional_id: str, topic: str, count: int = 3, **login: Any) -> None:
    """A transaction that waits for somebody's decision, and whose owner is gone."""
    with fencepost.Producer(servers, transactional_id=transactional_id, two_phase_commit=True, **login) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=0)
        producer.prepare_transaction()


def committed(servers: str, topic: str) -> list[bytes | None]:
    """Return the committed values in partition 0 up to its present end."""
    partition = fencepost.TopicPartition(topic, 0)
    with fencepost.Admin(servers) as admin:
        wait_for_markers(admin, [partition])
        end = admin.list_offsets({partition: LATEST}, isolation=Isolation.READ_COMMITTED)[partition].offset
    values: list[bytes | None] = []
    with fencepost.Consumer(servers, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        while consumer.position(partition) < end:
            values += [record.value for record in consumer.poll(1000)]
    return values


def test_who_holds_readers_back_is_found_and_decided(
    broker: BrokerUnderTest, serve: Callable[..., str], show: Callable[..., Tab]
) -> None:
    topic, name = broker.name("held"), broker.name(HTML)
    with fencepost.Admin(broker.bootstrap_servers) as admin:
        admin.create_topic(topic, 2)
    prepare(broker.bootstrap_servers, name, topic)
    tab = show(serve(broker.bootstrap_servers, allow_actions=True))

    tab.get_by_role("link", name="Transactions").click()
    # Until the view is there, no field takes the name, and a digit of it opens another tab.
    tab.get_by_label("Filter by transactional id").wait_for()
    tab.keyboard.press("/")
    tab.keyboard.type(name)
    sees(tab, "prepared", "1 partition", "a client")
    tab.get_by_role("link", name=name).click()
    sees(tab, "Held back by it:", f"{topic}-0", "open from offset 0", "first seen, Ongoing", f"enlisted: {topic}-0")
    sees(tab, "It waits for its owner to commit or abort it.")

    tab.get_by_role("button", name="Commit").click()
    sees(tab, "becomes visible to readers of committed records", f"{topic}-0", where="dialog")
    sees(tab, "whoever keeps its state is to decide it, and may have done so", where="dialog")
    assert tab.get_by_role("button", name="Commit it").is_disabled()
    tab.get_by_role("button", name="Leave it as it is").click()
    assert committed(broker.bootstrap_servers, topic) == []

    tab.get_by_role("button", name="Commit").click()
    tab.get_by_role("checkbox").check()
    tab.get_by_role("button", name="Commit it").click()
    sees(tab, f"committed {name}", where="dialog")
    tab.get_by_role("button", name="Close").click()
    # A look may fall between the answer and the markers: then PrepareCommit stands between the two.
    sees(tab, re.compile("(Ongoing|PrepareCommit) → CompleteCommit"))
    assert committed(broker.bootstrap_servers, topic) == [b"0", b"1", b"2"]
    assert "Fencepost" in tab.title()


def test_a_prepared_transaction_is_aborted_and_a_topic_tells_of_it(
    broker: BrokerUnderTest, serve: Callable[..., str], show: Callable[..., Tab]
) -> None:
    topic, name = broker.name("held"), broker.name("billing")
    prepare(broker.bootstrap_servers, name, topic, 1000)
    tab = show(f"{serve(broker.bootstrap_servers, allow_actions=True)}/topic?name={topic}")
    sees(tab, topic, "1,000 offsets by", name)
    tab.get_by_role("link", name=name).click()
    tab.get_by_role("button", name="Abort").click()
    sees(tab, "no reader of committed records will ever see it", where="dialog")
    tab.get_by_role("checkbox").check()
    tab.get_by_role("button", name="Abort it").click()
    sees(tab, f"aborted {name}", where="dialog")
    tab.go_back()
    sees_no_more(tab, name)
    assert committed(broker.bootstrap_servers, topic) == []


@pytest.fixture
def cluster(fencepost_broker: Broker) -> str:
    return fencepost_broker.bootstrap_servers


def test_topics_and_groups(cluster: str, serve: Callable[..., str], show: Callable[..., Tab]) -> None:
    topic, group = f"orders-{uuid.uuid4().hex[:8]}", f"{HTML}{uuid.uuid4().hex[:8]}"
    with fencepost.Admin(cluster) as admin, fencepost.Producer(cluster) as producer:
        admin.create_topic(topic, 3)
        for number in range(1200):
            producer.send(topic, b"x", partition=number % 3)
        producer.flush()
        with fencepost.Consumer(cluster, group_id=group, client_id=HTML, auto_offset_reset="earliest") as consumer:
            consumer.subscribe([topic])
            while not consumer.poll(1000):
                pass
            consumer.commit({(topic, 0): 100, (topic, 1): 400})
            tab = show(f"{serve(cluster)}#/topics?q={topic}")
            sees(tab, topic, "1,200")
            producer.send(topic, b"more", partition=0).result()
            sees(tab, "1,201")

            tab.keyboard.press("4")
            sees(tab, "Groups", where="main h1")  # the field of the topics has the same label
            with fencepost.ShareConsumer(cluster, group_id=f"{topic}-shared") as sharing:
                admin.create_topic(f"{topic}-queue", 3)
                sharing.subscribe([f"{topic}-queue"])
                sharing.poll(1000)  # the group begins at the end
                for number in range(77):
                    producer.send(f"{topic}-queue", b"new", partition=number % 3)
                producer.flush()
                tab.get_by_label("Filter by name").fill(f"{topic}-shared")
                sees(tab, f"{topic}-shared", "share", "77")
                tab.get_by_role("link", name=f"{topic}-shared").click()
                sees(tab, f"{topic}-queue-1", "Start offset", "26", "Lag over time")
                tab.go_back()
            tab.get_by_label("Filter by name").fill(group)
            sees(tab, "301", "Stable")
            tab.get_by_role("link", name=group).click()
            sees(tab, f"{topic}-0", "301", HTML, "1 member")
            sees(tab, "Lag over time")
            tab.get_by_role("img", name=re.compile(r"from .* to .*: now 301 offsets, at most 301 offsets$")).wait_for()
    assert tab.locator("main script, main b").count() == 0
    tab.goto(f"{tab.url.partition('#')[0]}#/group?name=nobody")
    sees(tab, "There is no such thing in the cluster.")


def test_a_sink_is_resolved(cluster: str, serve: Callable[..., str], show: Callable[..., Tab]) -> None:
    bench = Bench(cluster, KEEPING)
    opened = bench.open()
    decided, _ = bench.task(opened, 0), bench.task(opened, 0)
    bench.decide(0, [decided])
    tab = show(f"{serve(cluster, allow_actions=True)}/sinks?q={bench.sink}")
    sees(tab, bench.sink)
    tab.get_by_role("link", name=bench.sink).click()
    sees(
        tab,
        "1 transaction open and not decided",
        bench.query,
        "Batch 0 is decided. Its transactions: 1 open.",
    )
    tab.get_by_role("button", name="Resolve this sink").click()
    sees(tab, "A run of the query that is alive is superseded: stop it first.", where="dialog")
    tab.get_by_role("button", name="Resolve it").click()
    sees(tab, "1 committed, 1 aborted", where="dialog")
    tab.get_by_role("button", name="Close").click()
    sees(tab, "Its transactions: 1 committed.", "Nothing is open that is not decided.")
    assert bench.committed() == [0]


def test_a_page_that_only_looks_has_no_buttons(
    cluster: str, serve: Callable[..., str], show: Callable[..., Tab]
) -> None:
    name = f"look-{uuid.uuid4().hex[:8]}"
    prepare(cluster, name, f"t-{name}")
    tab = show(f"{serve(cluster)}#/transaction?name={name}")
    sees(tab, "It never times out")
    assert tab.get_by_role("button").count() == 0
    with fencepost.Admin(cluster) as admin:
        admin.force_terminate_transaction(name)
    sees(tab, re.compile("(Ongoing|PrepareAbort|CompleteAbort) → Empty"))


def test_the_cluster_goes_away_and_comes_back(
    serve: Callable[..., str], show: Callable[..., Tab], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_monitor, "CALL_MS", 1000)
    running = BrokerProcess()
    running.start()
    try:
        with fencepost.Admin(running.bootstrap_servers) as admin:
            admin.create_topic("kept", 1)
        tab = show(f"{serve(running.bootstrap_servers)}#/topics")
        sees(tab, "kept")
        sees(tab, "live", where="#pulse")
        running.kill()
        sees(tab, "The cluster is away", running.bootstrap_servers, "What is shown is from", where="#notices")
        sees(tab, "kept")
        sees(tab, "away", where="#pulse")
        running.start()
        sees(tab, "live", where="#pulse")
        sees_no_more(tab, "away", where="#notices")
    finally:
        running.stop()


def test_what_may_not_be_asked_is_told(serve: Callable[..., str], show: Callable[..., Tab]) -> None:
    """The holder of a partition is shown only with the right to READ it (DescribeProducers, KIP-664)."""
    rights = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
        "transaction.two.phase.commit.enable": True,
    }

    def login(user: str) -> dict[str, Any]:
        return {"security_protocol": "SASL_PLAINTEXT", "sasl_username": user, "sasl_password": user}

    with fencepost.Broker(rights, users={"admin": "admin", "alice": "alice"}) as broker:
        servers = broker.bootstrap_servers
        prepare(servers, "hers", "seen", **login("admin"))
        with fencepost.Admin(servers, **login("admin")) as admin:
            admin.create_acls([Acl(ResourceType.TOPIC, "seen", "User:alice", AclOperation.DESCRIBE)])
        tab = show(f"{serve(servers, login=login('alice'))}#/topic?name=seen")
        sees(tab, "3 offsets")
        sees(tab, "transactions that hold readers back", ": not all is known.", where="#notices")
        assert tab.locator(".notice").count() == 1, "one for all questions without an answer"
        tab.locator("#notices").get_by_role("link", name="overview").click()
        sees(tab, "Brokers", "TOPIC_AUTHORIZATION_FAILED", "use a principal with READ on the topics that are held back")


def test_the_program_is_stopped(cluster: str, show: Callable[..., Tab]) -> None:
    page = Page([PageCluster({"bootstrap.servers": cluster})], every_s=0.2)
    try:
        tab = show(page.address)
        sees(tab, "Brokers")
    finally:
        page.close()
    sees(tab, "The program behind this page does not answer.", where="#notices")


def contrast(first: str, second: str) -> float:
    """Of two colours as browsers give them (WCAG 2.2, relative luminance)."""

    def luminance(colour: str) -> float:
        parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_measured() -> None:
    assert contrast("rgb(0, 0, 0)", "rgb(255, 255, 255)") == pytest.approx(21)
    assert contrast("rgb(119, 119, 119)", "rgb(255, 255, 255)") == pytest.approx(4.48, abs=0.01)


def test_both_colour_schemes_can_be_read(cluster: str, serve: Callable[..., str], show: Callable[..., Tab]) -> None:
    address = serve(cluster)
    grounds = []
    for scheme in ("light", "dark"):
        tab = show(address, color_scheme=scheme)
        sees(tab, "Brokers")
        colours = tab.evaluate(
            "(parts) => parts.map((part) => getComputedStyle(document.querySelector(part)).color)",
            ["body", ".figures dt", "nav a[aria-current]", ".pulse"],
        )
        ground = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        accent = tab.evaluate("getComputedStyle(document.querySelector('nav a[aria-current]')).borderBottomColor")
        grounds.append(ground)
        assert [colour for colour in [*colours, accent] if contrast(colour, ground) < 4.5] == []
    assert len(set(grounds)) == 2


def test_a_phone_shows_all_without_scrolling_sideways(
    cluster: str, serve: Callable[..., str], show: Callable[..., Tab]
) -> None:
    name = f"{'x' * 60}-{uuid.uuid4().hex}"
    prepare(cluster, name, "t-phone")
    tab = show(serve(cluster), viewport={"width": 360, "height": 740})
    shown = {
        "overview": "Brokers",
        "transactions": name,
        "topics?q=t-phone": "t-phone",
        f"transaction?name={name}": "It never times out",
        "topic?name=t-phone": f"by {name}",
    }
    for view, text in shown.items():
        tab.goto(f"{tab.url.partition('#')[0]}#/{view}")
        sees(tab, text)
        for part in ("document.documentElement", "document.querySelector('nav')"):
            assert tab.evaluate(f"{part}.scrollWidth - {part}.clientWidth") <= 0, view
    with fencepost.Admin(cluster) as admin:
        admin.force_terminate_transaction(name)


def test_a_long_name_does_not_break_the_words_beside_it(
    cluster: str, serve: Callable[..., str], show: Callable[..., Tab]
) -> None:
    name = f"{'z' * 200}-{uuid.uuid4().hex}"
    with fencepost.Admin(cluster) as admin:
        admin.create_topic("t-long", 1, exist_ok=True)
        admin.alter_group_offsets(name, {fencepost.TopicPartition("t-long", 0): 0})
    tab = show(f"{serve(cluster)}#/groups?q={name}", viewport={"width": 1100, "height": 700})
    sees(tab, name, "Empty")
    kind = tab.locator("tbody td[data-label=Type]")
    lines = "(cell) => (range = document.createRange(), range.selectNodeContents(cell), range.getClientRects().length)"
    assert (kind.inner_text(), kind.evaluate(lines)) == ("classic", 1)
