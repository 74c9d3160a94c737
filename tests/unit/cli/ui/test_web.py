"""The page's doors: who is let in, what is refused and why; many who look cost the brokers no more than one."""

from __future__ import annotations

import errno
import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http.client import HTTPConnection
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families

import fencepost
from fencepost.broker.embedded import Broker
from fencepost.broker.metrics.bounded_http import is_own_host
from fencepost.broker.security.listeners import jaas_line
from fencepost.cli.diagnosis.finding_text import WatchedState, as_metrics
from fencepost.cli.main import main
from fencepost.cli.ui import cluster_monitor, server
from fencepost.cli.ui.cluster_monitor import PageCluster
from fencepost.cli.ui.documents import VIEWS
from fencepost.cli.ui.server import Page
from fencepost.client.admin.quotas import QuotaEntity
from fencepost.client.diagnosis.findings import CODES
from fencepost.errors import ConfigurationError
from tests.support.certificates import Authority
from tests.support.secure_kafka import SCRAM_MODULE


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"transaction.two.phase.commit.enable": True}) as running:
        yield running


@pytest.fixture(scope="module")
def page(broker: Broker) -> Iterator[Page]:
    new_page = Page(
        [PageCluster({"bootstrap.servers": broker.bootstrap_servers}, allow_actions=True)],
        every_s=0.2,
        names=["Kafka-Box"],
    )
    yield new_page
    new_page.close()


def ask(
    page: Page | str, path: str, method: str = "GET", body: object = None, **headers: str
) -> tuple[int, Any, Mapping[str, str]]:
    """Status, body (parsed where it is JSON) and headers. `headers`: with _ for -; Host is right unless it is said."""
    url = urlsplit(page if isinstance(page, str) else page.address)
    connection = HTTPConnection(url.hostname or "", url.port, timeout=30)
    try:
        text = json.dumps(body) if body is not None else None
        connection.request(method, path, text, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        found = answer.read()
        kind = answer.headers["Content-Type"]
        return answer.status, json.loads(found) if kind == "application/json" else found, dict(answer.headers)
    finally:
        connection.close()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def samples(text: str) -> dict[str, float]:
    """By a parser of others, the values of the findings and of the other gauges."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.labels.get("code", sample.name)] = sample.value
    return found


def test_findings_are_metrics(page: Page, broker: Broker) -> None:
    def now() -> dict[str, float]:
        return samples(ask(page, "/metrics")[1].decode())

    until(lambda: now().get("fencepost_cluster_answers") == 1)
    before = now()
    assert set(before) == {*CODES, "fencepost_cluster_answers", "fencepost_last_answer_timestamp_seconds"}
    assert before["FP502"] == 0
    with fencepost.Admin(broker.bootstrap_servers) as admin, fencepost.Producer(broker.bootstrap_servers) as producer:
        admin.create_topic("measured", 1)
        producer.send("measured", b"v").result(60)
        admin.alter_group_offsets("left", {("measured", 0): 0})
        until(lambda: now()["FP502"] == 1)
        admin.delete_group("left")
        until(lambda: now()["FP502"] == 0)


def test_a_cluster_that_is_away_is_no_healthy_one() -> None:
    assert samples(as_metrics([WatchedState([], 1500, away=True)])) == {
        "fencepost_cluster_answers": 0,
        "FP101": 1,
        "fencepost_last_answer_timestamp_seconds": 1.5,
    }
    assert samples(as_metrics([WatchedState([], None, away=True)])) == {"fencepost_cluster_answers": 0, "FP101": 1}
    assert samples(as_metrics([WatchedState([], None, away=False)])) == {}, "nothing was asked yet"


@pytest.mark.parametrize(
    ("host", "is_own"),
    [
        ("127.0.0.1:8080", True),
        ("localhost", True),
        ("LOCALHOST:1", True),
        ("[::1]:8080", True),
        ("192.0.2.7", True),
        ("kafka-box:80", True),
        ("evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.evil.example:8080", False),
        ("evil.example@localhost.evil", False),
        ("[::1", False),
        ("", False),
        ("user@localhost", False),
        ("evil.example@127.0.0.1:8080", False),
        ("localhost/evil.example", False),
        ("localhost?", False),
        ("localhost#evil.example:80", False),
        ("localhost:port", False),
        ("localhost\n", False),
        ("[127.0.0.1]", False),
        ("[kafka-box]", False),
        ("::1", False),
        (":80", False),
    ],
)
def test_only_own_names_are_answered(host: str, is_own: bool) -> None:
    assert is_own_host(host, frozenset({"kafka-box"})) is is_own


def test_another_host_gets_nothing(page: Page) -> None:
    for path in ("/", "/app.js", "/api/about", "/api/overview"):
        status, reported, _ = ask(page, path, Host="evil.example")
        assert status == 421
        assert reported["error"].startswith("this page is not 'evil.example'")
        assert ask(page, path, Host="kafka-box")[0] == 200
        assert ask(page, path, Sec_Fetch_Site="cross-site")[0] == 403


def test_the_page_brings_all_it_needs_and_may_load_nothing_else(page: Page) -> None:
    status, text, headers = ask(page, "/")
    assert status == 200
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert b"http" not in text, "nothing from elsewhere"
    for path in ("/app.js", "/dom.js", "/views.js", "/style.css", "/icon.svg"):
        assert path.encode() in text or path == "/icon.svg"
        assert ask(page, path)[0] == 200
    for path in ("/nothing", "/api/nothing", "/../server.py", "//["):
        assert ask(page, path)[0] in (400, 404)


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({"X_Fencepost_Token": ""}, 403, "token"),
        ({"X_Fencepost_Token": "guessed"}, 403, "token"),
        ({"Origin": "http://evil.example"}, 403, "evil.example"),
        ({"Origin": "null"}, 403, "null"),
        ({"Content_Type": "text/plain"}, 415, "application/json"),
        ({"Sec_Fetch_Site": "same-site"}, 403, "another site"),
    ],
)
def test_nobody_elses_page_can_change_anything(page: Page, change: dict[str, str], status: int, words: str) -> None:
    right = {"X_Fencepost_Token": page.token, "Content_Type": "application/json"}
    wanted = {"id": "nobody", "commit": False}
    assert ask(page, "/do/look-before-end", "POST", wanted, **right)[0] == 200
    refused = ask(page, "/do/look-before-end", "POST", wanted, **{**right, **change})
    assert refused[0] == status
    assert words in refused[1]["error"]
    assert ask(page, "/do/look-before-end", "GET")[0] == 405


@pytest.mark.parametrize(
    ("path", "status"),
    [("/", 405), ("/app.js", 405), ("/metrics", 405), ("/api/topics", 405), ("/nothing", 404), ("/do/end", 403)],
)
def test_a_request_without_a_body_gets_the_answer_of_its_path(page: Page, path: str, status: int) -> None:
    url = urlsplit(page.address)
    for more, expected in ((b"", status), (b"Transfer-Encoding: chunked\r\n", 411)):
        with socket.create_connection((url.hostname or "", url.port or 0), timeout=60) as client:
            client.sendall(b"POST %b HTTP/1.1\r\nHost: localhost\r\n%b\r\n" % (path.encode(), more))
            assert client.makefile("rb").readline().split()[1] == b"%d" % expected


def test_a_body_is_of_a_known_size_and_an_object(page: Page) -> None:
    right = {"X_Fencepost_Token": page.token, "Content_Type": "application/json"}
    assert ask(page, "/do/end", "POST", ["x" * 70_000], **right)[0] == 413
    assert ask(page, "/do/end", "POST", ["x"], **right)[:2] == (400, {"error": "the body is not an object"})
    url = urlsplit(page.address)
    deep = http.client.HTTPConnection(url.hostname or "", url.port, timeout=60)
    headers = {name.replace("_", "-"): value for name, value in right.items()}
    deep.request("POST", "/do/end", b"[" * 60_000, headers)
    assert deep.getresponse().status == 400
    deep.close()
    assert ask(page, "/do/end", "POST", {}, **right)[:2] == (400, {"error": "id is missing"})
    assert ask(page, "/do/nothing", "POST", {}, **right)[0] == 404


def test_the_token_is_given_to_nobody_who_asks(page: Page) -> None:
    paths = ["/", "/app.js", "/api/about", "/api/overview", "/api/transactions", "/?token", "/api/about?token=x"]
    assert [path for path in paths if page.token in str(ask(page, path))] == []
    assert page.acting_address == f"{page.address}#token={page.token}"


def test_a_page_that_only_looks_changes_nothing(broker: Broker) -> None:
    looks = Page([PageCluster({"bootstrap.servers": broker.bootstrap_servers})])
    try:
        right = {"X_Fencepost_Token": looks.token, "Content_Type": "application/json"}
        for action in ("look-before-end", "end", "resolve"):
            reported = ask(looks, f"/do/{action}", "POST", {"id": "a", "sink": "a"}, **right)
            assert reported[:2] == (403, {"error": "this page only looks: start it with --allow-actions"})
    finally:
        looks.close()


def prepare(broker: Broker) -> str:
    """The id of a transaction that waits for somebody's decision."""
    name = f"prepared {time.monotonic_ns()}"
    with fencepost.Producer(broker.bootstrap_servers, transactional_id=name, two_phase_commit=True) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"x")
        producer.prepare_transaction()
    return name


def test_a_transaction_is_ended_as_it_was_looked_at_or_not_at_all(broker: Broker, page: Page) -> None:
    prepared = prepare(broker)
    right = {"X_Fencepost_Token": page.token, "Content_Type": "application/json"}
    wanted = {"id": prepared, "commit": True}
    _, looked, _ = ask(page, "/do/look-before-end", "POST", wanted, **right)
    assert "becomes visible" in looked["question"]
    (objection,) = looked["objections"]
    assert objection["consent"] == "even-if-prepared"
    without = ask(page, "/do/end", "POST", {**wanted, "pair": looked["pair"]}, **right)
    assert without[0] == 409
    assert without[1]["error"].endswith(objection["reason"].partition(" old, ")[2]), "but for its age"
    given = {**wanted, "given": ["even-if-prepared"]}
    moved = ask(page, "/do/end", "POST", {**given, "pair": "7:7"}, **right)
    assert (moved[0], moved[1]["error"]) == (
        409,
        "the transaction has moved on since it was looked at: look again",
    )
    with fencepost.Admin(broker.bootstrap_servers) as admin:
        (found,) = admin.describe_transactions([prepared])
        assert found.state == "Ongoing"
        done = ask(page, "/do/end", "POST", {**given, "pair": looked["pair"]}, **right)
        assert done[:2] == (200, {"done": f"committed {prepared}"})
        (found,) = admin.describe_transactions([prepared])
        assert found.state == "CompleteCommit"
    again = ask(page, "/do/look-before-end", "POST", wanted, **right)[1]
    assert again["objections"] == [{"reason": f"{prepared} is not open: CompleteCommit", "consent": None}]


def test_a_look_without_an_answer_has_changed_nothing(own_broker: Broker) -> None:
    settings = {"bootstrap.servers": own_broker.bootstrap_servers, "default.api.timeout.ms": "1500"}
    page = Page([PageCluster(settings, allow_actions=True)], every_s=600)
    try:
        right = {"X_Fencepost_Token": page.token, "Content_Type": "application/json"}
        fault = own_broker.faults.swallow("DescribeTransactions", times=None)
        looked = ask(page, "/do/look-before-end", "POST", {"id": "a", "commit": True}, **right)
        assert fault.hits > 0
        assert looked[0] == 409
        assert "DescribeTransactions" in looked[1]["error"]
        assert "may have been made" not in looked[1]["error"]
    finally:
        page.close()


@pytest.fixture
def own_broker() -> Iterator[Broker]:
    """At which nobody else looks."""
    with Broker({"transaction.two.phase.commit.enable": True}) as running:
        yield running


def test_many_who_look_cost_no_more_than_one(own_broker: Broker) -> None:
    broker, prepared = own_broker, prepare(own_broker)
    page = Page([PageCluster({"bootstrap.servers": broker.bootstrap_servers})], every_s=600)
    try:
        until(lambda: ask(page, "/api/overview")[1]["seen_ms"] is not None)
        before = dict(broker.metrics().requests)
        path = f"/api/transaction?name={quote(prepared)}"
        answers: list[int] = []
        tabs = [threading.Thread(target=lambda: answers.append(ask(page, path)[0])) for _ in range(20)]
        for tab in tabs:
            tab.start()
        for tab in tabs:
            tab.join()
        for _ in range(20):
            ask(page, "/api/topics")
        assert answers == [200] * 20
        after = dict(broker.metrics().requests)
        asked = {api: count - before.get(api, 0) for api, count in after.items() if api.startswith("describe")}
        assert {api: count for api, count in asked.items() if count} == {
            "describe_transactions": 1,
            "describe_producers": 1,
        }
        assert after["metadata"] - before["metadata"] <= 1
    finally:
        page.close()


def test_connections_that_ask_nothing_keep_nobody_out(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MOST_AT_ONCE", 0.5)
    page = Page([PageCluster({"bootstrap.servers": broker.bootstrap_servers})])
    url = urlsplit(page.address)
    try:
        with socket.create_connection((url.hostname, url.port)) as slow:
            slow.sendall(b"GET / HTTP/1.0\r\n")  # and no more
            assert ask(page, "/")[0] == 200
            slow.settimeout(60)
            assert slow.recv(1) == b""
    finally:
        page.close()


def test_a_cluster_that_is_not_there_is_no_reason_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_monitor, "CALL_MS", 500)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        page = Page([PageCluster({"bootstrap.servers": address})], every_s=0.1)
        try:
            until(lambda: ask(page, "/api/overview")[1]["away"] is not None)
            reported = ask(page, "/api/overview")[1]
            assert address in reported["away"]
            assert (reported["seen_ms"], reported["view"]) == (None, {})
            assert ask(page, "/api/transaction?name=a")[:2] == (503, {"error": reported["away"]})
        finally:
            page.close()


def test_what_was_asked_for_does_nothing_to_a_terminal(
    page: Page, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    name, shown = "a\n\x1b[31mb\u202e", "a\\n\\x1b[31mb\\u202e"
    with fencepost.Producer(broker.bootstrap_servers, transactional_id=name) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("asked", b"x").result()
        right = {"X_Fencepost_Token": page.token, "Content_Type": "application/json"}
        wanted = {"id": name, "commit": False, "given": []}
        wanted["pair"] = ask(page, "/do/look-before-end", "POST", wanted, **right)[1]["pair"]
        assert ask(page, "/do/end", "POST", wanted, **right)[1] == {"done": f"aborted {name}"}
    ask(page, "/do/resolve", "POST", {"sink": name}, **right)
    reported = "asked on the page, as the principal of the settings: "
    first, second = (record.message for record in caplog.records if record.message.startswith(reported))
    assert first.startswith(f"{reported}Abort {shown} (")
    assert second == f"{reported}resolve sink {shown}"


PASSWORD, WRONG_PASSWORD, KEY_PASSWORD = SECRETS = "hunter2-of-the-admin", "mistyped-by-the-admin", "opens-the-key"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Settings for a cluster with TLS, certificates of clients, and SCRAM."""
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority(folder)
    client = authority.issue("client", locked_with=KEY_PASSWORD)
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(authority.path)}
    config = {
        **trust,
        "listeners": "SASL_SSL://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.issue("broker").keystore),
        "listener.name.sasl_ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": jaas_line({"admin": PASSWORD}, "SCRAM-SHA-512"),
    }
    with Broker(config) as broker:
        yield {
            **trust,
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": f'{SCRAM_MODULE} required username="admin" password="{PASSWORD}";',
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(client.keystore),
            "ssl.key.password": KEY_PASSWORD,
        }


def answers_of(page: Page) -> dict[str, str]:
    """All that the page says to anybody, by what it was asked."""
    token = page.token
    gets = ["/", "/app.js", "/dom.js", "/views.js", "/style.css", "/icon.svg", "/nothing", "/api/about", "//["]
    gets += [f"/api/{view}" for view in (*VIEWS, "nothing")]
    gets += [f"/api/{kind}?name={name}" for kind in ("topic", "group", "transaction", "sink") for name in ("a", "b")]
    reported = {path: str(ask(page, path)) for path in gets}
    for other in ({"Host": "evil.example"}, {"Sec_Fetch_Site": "cross-site"}):
        reported[str(other)] = str(ask(page, "/api/about", **other))
    right = {"X_Fencepost_Token": token, "Content_Type": "application/json"}
    pair = {"id": "a", "pair": "0:0", "commit": False}
    for action, wanted in (("look-before-end", {"id": "a"}), ("end", pair), ("resolve", {"sink": "a"}), ("end", {})):
        reported[f"{action} {wanted}"] = str(ask(page, f"/do/{action}", "POST", wanted, **right))
        reported[f"{action} {wanted}, refused"] = str(ask(page, f"/do/{action}", "POST", wanted))
    assert [path for path, text in reported.items() if token in text] == []
    return reported


def with_secrets(reported: Mapping[str, str]) -> list[str]:
    return [asked for asked, text in reported.items() if any(secret in text for secret in (*SECRETS, SCRAM_MODULE))]


@pytest.mark.parametrize("password", [PASSWORD, WRONG_PASSWORD])
def test_no_secret_is_on_the_page(secured: dict[str, str], password: str, caplog: pytest.LogCaptureFixture) -> None:
    """Neither where the page may see all, nor where it is not let in, nor in its log."""
    line = secured["sasl.jaas.config"].replace(PASSWORD, password)
    page = Page([PageCluster({**secured, "sasl.jaas.config": line}, allow_actions=True)], every_s=0.1)
    try:
        until(lambda: ask(page, "/api/overview")[1]["away" if password != PASSWORD else "view"] not in (None, {}))
        reported = answers_of(page)
    finally:
        page.close()
    assert with_secrets(reported) == []
    assert with_secrets({"the log": caplog.text}) == []


def test_a_secret_on_the_page_would_be_found(secured: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(of: cluster_monitor.ClusterMonitor, *_: object) -> dict[str, object]:
        raise ConfigurationError(f"cannot log in with {of._settings}")

    monkeypatch.setattr(cluster_monitor.ClusterMonitor, "_resolve", careless)
    page = Page([PageCluster(secured, allow_actions=True)], every_s=0.1)
    try:
        assert with_secrets(answers_of(page)) == ["resolve {'sink': 'a'}"]
    finally:
        page.close()


def test_a_broker_shows_itself_and_ends_cleanly() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "fencepost", "broker", "--listen", "127.0.0.1:0", "--ui"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            lines = iter(process.stderr or ())
            line = next(line for line in lines if "the page is at " in line)
            address = line.rpartition(" ")[2].strip()
            until(lambda: bool(ask(address, "/api/overview")[1]["view"]))
            brokers = ask(address, "/api/overview")[1]["view"]["brokers"]
            assert [broker["id"] for broker in brokers] == [1]
            assert [each["actions"] for each in ask(address, "/api/about")[1]["clusters"]] == [False]
        finally:
            process.terminate()
        assert "Traceback" not in "".join(lines)
        assert process.wait(60) == 0


PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required user_alice='a';"
SASL_ONLY = (
    "--config=listeners=SASL_PLAINTEXT://127.0.0.1:0",
    f"--config=listener.name.sasl_plaintext.plain.sasl.jaas.config={PLAIN}",
)


def test_what_cannot_be_is_refused_at_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    for words, status, reported in (
        (["ui", "--allow-actions", "--host", "0.0.0.0"], 2, "the page has no login"),  # noqa: S104 - refused
        (["ui", "--host", "192.0.2.1", "--port", "1"], 1, "fencepost: "),
        (["broker", "--ui", "70000"], 2, "--ui: '70000' is not a port from 0 to 65535"),
        (["broker", "--ui", *SASL_ONLY], 2, "every listener asks for credentials"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == status, words
        assert reported in capsys.readouterr().err


def test_a_list_that_is_cut_says_how_much_is_missing(own_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_monitor, "MOST_RULES", 2)
    with fencepost.Admin(own_broker.bootstrap_servers) as admin:
        limits = {QuotaEntity(user=f"u{n}"): {"producer_byte_rate": 1000.0 + n} for n in range(5)}
        admin.alter_client_quotas(limits)
    own_page = Page([PageCluster({"bootstrap.servers": own_broker.bootstrap_servers})], every_s=0.2)
    try:
        _, answer, _ = ask(own_page, "/api/access")
    finally:
        own_page.close()
    view = answer["view"]
    shown = [(row["entity"], row["value"]) for row in view["quotas"]]
    assert shown == [("clients with user='u0'", 1000.0), ("clients with user='u1'", 1001.0)]
    assert view["more"] == {"acls": 0, "users": 0, "quotas": 3}


def test_a_port_in_use_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SystemExit) as ended:
            main(["ui", "-b", "127.0.0.1:1", "--port", str(port)])
    assert ended.value.code == 1
    why = os.strerror(errno.EADDRINUSE)
    assert capsys.readouterr().err == f"fencepost: the page cannot listen on 127.0.0.1:{port}: {why}\n"
