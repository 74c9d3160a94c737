"""One cluster of the page: a thread polls it for all viewers, and its data and changes are served from here."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeVar

from fencepost.cli.cluster_settings import PATIENCE, PATIENCE_MS, sink_options
from fencepost.cli.diagnosis.cluster_snapshot import Calls, SnapshotCollector
from fencepost.cli.diagnosis.finding_text import WatchedState
from fencepost.cli.ending import Consent, PlannedEnding, end_open, ending_of
from fencepost.cli.printable import printable
from fencepost.cli.transaction_view import Session
from fencepost.cli.ui import documents
from fencepost.cli.ui.browsing import Browser
from fencepost.cli.ui.changes import CHANGES, Clients, PageChange
from fencepost.cli.ui.messages import query_of
from fencepost.cli.ui.registry import RegistryDecoder
from fencepost.cli.ui.watch import ClusterWatch
from fencepost.cli.ui.web import HttpRefusal
from fencepost.client.blocking import Admin, Producer
from fencepost.client.diagnosis.collecting import AWAY
from fencepost.client.net.asyncio_runtime import runtime_for
from fencepost.client.net.cluster import Cluster
from fencepost.client.net.io_thread import io_thread
from fencepost.config import AdminConfig
from fencepost.errors import ClosedError, KafkaError
from fencepost.spark.sink.runner import resolve_sink

__all__ = ["MOST_AT_ONCE", "ClusterMonitor", "PageCluster"]

log = logging.getLogger("fencepost.ui")

CALL_MS: Final = 5_000  # for each call of a poll, so that the page soon shows that brokers are unreachable
IDLE_AFTER_S: Final = 60.0  # since the last request of a viewer
IDLE_EVERY_S: Final = 30.0
TURN_S: Final = 5.0  # longest wait for the change before
LONGEST_CALL_MS: Final = 60_000
MOST_LOOKUPS: Final = 200  # recent answers about single transactions and groups
MOST_RULES: Final = 500  # rows of each list of the view Access
MOST_AT_ONCE: Final = 32  # requests about one cluster, so that a slow one leaves room for the others

T = TypeVar("T")


class PageCluster(NamedTuple):
    """The settings of a cluster that the page shows.

    Attributes:
        settings: The client's settings by Kafka's dotted names, with the principal.
        name: The name on the page; "" for the only cluster.
        allow_actions: The page may change the cluster.
        schema_registry: Address of the schema registry.
    """

    settings: Mapping[str, str]
    name: str = ""
    allow_actions: bool = False
    schema_registry: str | None = None


class _Lookup:
    """The answer about one object, shared by all requests for it at the same time."""

    def __init__(self) -> None:
        self.answer: Future[Any] = Future()
        self.at_s = math.inf

    def is_old(self, seconds: float) -> bool:
        return time.monotonic() - self.at_s > seconds


class ClusterMonitor:
    """Polls one cluster, and serves its views and changes. Any thread may call it."""

    def __init__(self, cluster: PageCluster, decision_topic: str, *, every_s: float) -> None:
        """Start polling. Raises ConfigurationError. Unreachable brokers are no error."""
        self._name = cluster.name
        self._settings = dict(cluster.settings)
        self._topic = decision_topic
        self._every_s = every_s
        self._allow_actions = cluster.allow_actions
        config = AdminConfig.from_dotted(self._settings)
        user = config.credentials()[0] if config.security_protocol.startswith("SASL_") else ""
        self._principal = user or config.sasl_kerberos_principal
        decode = None if cluster.schema_registry is None else RegistryDecoder(cluster.schema_registry)
        self._slots = threading.BoundedSemaphore(MOST_AT_ONCE)
        self._io = io_thread()

        async def make() -> Calls:
            return Calls(Cluster(runtime_for(config), config), CALL_MS)

        self._calls = self._io.run(make())
        self._call_ms = CALL_MS
        self._collector = SnapshotCollector(self._calls, decision_topic, CALL_MS)
        self._browser = Browser(self._calls, self._io, CALL_MS, decode)
        self._watch = ClusterWatch()
        self._lock = threading.Lock()  # of the watch
        self._asked_s = time.monotonic()
        self._wake = threading.Event()
        self._ended = False
        self._lookups: dict[tuple[str, str], _Lookup] = {}
        self._lookups_lock = threading.Lock()
        self._acting = threading.Lock()
        self._thread = threading.Thread(target=self._poll, name="fencepost-ui-looks", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop polling, and close the connections."""
        self._ended = True
        self._wake.set()

        async def end() -> None:
            self._calls.cluster.close()

        self._io.run(end())
        self._thread.join(CALL_MS / 1000)

    # --- looking ---

    def _poll(self) -> None:
        while not self._ended:
            began_s = time.monotonic()
            self._collect()
            took_s = time.monotonic() - began_s
            idle = time.monotonic() - self._asked_s > IDLE_AFTER_S
            # A pause is at least as long as the poll before, so that brokers answer polls for half of the time at most.
            self._wake.wait(max(IDLE_EVERY_S if idle else self._every_s, took_s))
            self._wake.clear()

    def _collect(self) -> None:
        try:
            snapshot = self._io.run(self._collector.collect_cached())
        except ClosedError:  # the process ends, before or without `close`
            self._ended = True
            return
        except Exception as error:
            if self._ended:
                return
            if not isinstance(error, KafkaError):
                log.exception("polling the cluster failed")
            with self._lock:
                self._watch.failed(str(error) or repr(error))
            if isinstance(error, AWAY) and self._call_ms < LONGEST_CALL_MS:
                # A large or slow cluster needs more time. A call to an unreachable one ends when a broker is back.
                self._call_ms = min(2 * self._call_ms, LONGEST_CALL_MS)
                self._collector = SnapshotCollector(self._calls, self._topic, self._call_ms)
            return
        with self._lock:
            self._watch.take(snapshot)

    def _look_up(self, kind: str, name: str, ask: Callable[[str], Coroutine[Any, Any, T]]) -> T:
        """Return one object by its name, from a recent answer if there is one. Raises HttpRefusal."""
        with self._lock:
            if self._watch.away is not None:
                raise HttpRefusal(503, self._watch.away)
        with self._lookups_lock:
            lookup = self._lookups.get((kind, name))
            is_mine = lookup is None or lookup.is_old(self._every_s / 2)
            if lookup is None or is_mine:
                self._lookups.pop((kind, name), None)
                lookup = self._lookups[kind, name] = _Lookup()
                while len(self._lookups) > MOST_LOOKUPS:
                    del self._lookups[next(iter(self._lookups))]
        if is_mine:  # the other requests for this object wait for this answer
            try:
                lookup.answer.set_result(self._io.run(ask(name)))
            except BaseException as error:
                lookup.answer.set_exception(error)
                if not isinstance(error, KafkaError):
                    raise
            finally:
                lookup.at_s = time.monotonic()
        try:
            found: T = lookup.answer.result()
        except KafkaError as error:
            raise HttpRefusal(503 if isinstance(error, AWAY) else 403, str(error)) from error
        return found

    # --- what the page asks for ---

    def about(self) -> dict[str, Any]:
        """Return the data for the page's header."""
        return {
            "name": self._name,
            "servers": self._settings["bootstrap.servers"],
            "principal": self._principal,
            "actions": self._allow_actions,
        }

    def summary(self) -> dict[str, Any]:
        """Return the data for the list of clusters."""
        with self._lock:
            snapshot, away = self._watch.snapshot, self._watch.away
            severities = Counter(each.severity.value for each in self._watch.findings)
        return {
            **self.about(),
            "away": away,
            "seen_ms": None if snapshot is None else snapshot.at_ms,
            "brokers": None if snapshot is None else len(snapshot.cluster.brokers),
            "topics": None if snapshot is None or not snapshot.knows("topics") else len(snapshot.topics),
            "findings": None if snapshot is None or away is not None else dict(severities),
        }

    @contextmanager
    def _slot(self) -> Iterator[None]:
        """Count a request about this cluster, up to MOST_AT_ONCE at a time. Raises HttpRefusal."""
        if not self._slots.acquire(blocking=False):
            raise HttpRefusal(503, f"{MOST_AT_ONCE} requests wait for this cluster; try again later")
        try:
            yield
        finally:
            self._slots.release()

    def view(self, name: str, query: Mapping[str, str]) -> dict[str, Any]:
        """Return a view by its name. Raises HttpRefusal."""
        with self._slot():
            return self._view(name, query)

    def _view(self, name: str, query: Mapping[str, str]) -> dict[str, Any]:
        if time.monotonic() - self._asked_s > IDLE_AFTER_S:
            self._wake.set()
        self._asked_s = time.monotonic()
        object_name = query.get("name", "")
        view: dict[str, Any] | None
        if name in documents.VIEWS:
            with self._lock:
                view = documents.VIEWS[name](self._watch, query)
        elif name == "topic":
            with self._lock:
                view = documents.topic(self._watch, object_name, query)
        elif name == "sink":
            with self._lock:
                view = documents.sink(self._watch, object_name)
        elif name == "transaction":
            detail = self._look_up(name, object_name, self._collector.transaction)
            with self._lock:
                view = documents.transaction(self._watch, detail)
        elif name == "group":
            group = self._look_up(name, object_name, self._collector.group)
            with self._lock:
                view = documents.group(self._watch, group, query)
        elif name in ("messages", "message"):
            view = self._messages(name, query)
        elif name in ("access", "settings"):
            try:
                view = self._access() if name == "access" else self._settings_of(object_name)
            except KafkaError as error:
                raise HttpRefusal(503 if isinstance(error, AWAY) else 403, str(error)) from error
        else:
            raise HttpRefusal(404, f"there is no view {name!r}")
        with self._lock:
            around = documents.envelope(self._watch, int(time.time() * 1000))
        return {**around, "view": view}

    def _messages(self, name: str, query: Mapping[str, str]) -> dict[str, Any] | None:
        """Return a page of messages, or one message. Raises HttpRefusal."""
        search = query_of(query)
        with self._lock:
            owners = documents.owners_of(self._watch)
        try:
            snapshot = self._browser.search if name == "messages" else self._browser.message
            found: dict[str, Any] | None = snapshot(search, owners)
        except KafkaError as error:
            raise HttpRefusal(503 if isinstance(error, AWAY) else 403, str(error)) from error
        return found

    def watched_state(self) -> WatchedState:
        """Return the findings for the metrics. A scrape counts as a viewer, so polls stay frequent."""
        if time.monotonic() - self._asked_s > IDLE_AFTER_S:
            self._wake.set()
        self._asked_s = time.monotonic()
        with self._lock:
            snapshot, away = self._watch.snapshot, self._watch.away
            collected_ms = None if snapshot is None else snapshot.at_ms
            return WatchedState(self._watch.findings, collected_ms, away is not None, self._name)

    # --- what it may do ---

    def act(self, action: str, change: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out an action, or return the question to confirm.

        Raises HttpRefusal with the reason why nothing was done, or with the words that it may have been done.
        """
        if not self._allow_actions:
            raise HttpRefusal(403, "this page only looks: start it with --allow-actions")
        acts: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            "look-before-end": self._before_end,
            "end": self._end,
            "resolve": self._resolve,
            "look-before-change": self._before_change,
            "change": self._change,
        }
        if action not in acts:
            raise HttpRefusal(404, f"there is no action {action!r}")
        try:
            with self._slot(), self._turn():
                done = acts[action](change)
                with self._lookups_lock:
                    self._lookups.clear()
        except KafkaError as error:
            is_change = not action.startswith("look-")
            doubt = "the change may have been made; " if is_change and error.may_have_taken_effect else ""
            raise HttpRefusal(409, f"{doubt}{error}") from error
        self._wake.set()
        return done

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Wait until no other change is being made. Raises HttpRefusal after TURN_S."""
        if not self._acting.acquire(timeout=TURN_S):
            raise HttpRefusal(503, "another change of this cluster is being made; nothing was changed, try again later")
        try:
            yield
        finally:
            self._acting.release()

    def _change_of(self, wanted: Mapping[str, Any]) -> PageChange:
        name = _text(wanted, "change")
        if name not in CHANGES:
            raise HttpRefusal(404, f"there is no change {name!r}")
        return CHANGES[name](wanted)

    def _before_change(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        change = self._change_of(wanted)
        return {"question": change.question, "name": change.name, "grave": change.is_grave}

    def _change(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        change = self._change_of(wanted)
        if change.is_grave and wanted.get("confirm") != change.name:
            raise HttpRefusal(409, f"type {change.name} to confirm")
        self._log_change(change.question)
        settings = {**PATIENCE, **self._settings}
        clients = Clients(
            lambda: Admin.from_config(settings),
            lambda more: Producer.from_config({**settings, "delivery.timeout.ms": PATIENCE_MS, **more}),
        )
        return {"done": change.run(clients)}

    def _log_change(self, words: str) -> None:
        principal = self._principal or "the principal of the settings"
        where = f" on cluster {self._name}" if self._name else ""
        log.warning("asked on the page, as %s%s: %s", printable(principal), where, printable(words))

    def _access(self) -> dict[str, Any]:
        """Return rules, users and quotas as rows, the number of rows left out, and the reasons for missing lists."""
        access: dict[str, Any] = {"errors": {}, "more": {}}
        with Admin.from_config({**PATIENCE, **self._settings}) as admin:
            calls: Mapping[str, Callable[[], list[dict[str, Any]]]] = {
                "acls": lambda: documents.acls(admin.describe_acls()),
                "users": lambda: documents.users(admin.describe_user_scram_credentials()),
                "quotas": lambda: documents.quotas(admin.describe_client_quotas()),
            }
            for part, ask in calls.items():
                try:
                    rows = ask()
                except KafkaError as error:
                    rows, access["errors"][part] = [], str(error)
                access[part], access["more"][part] = rows[:MOST_RULES], max(len(rows) - MOST_RULES, 0)
        return access

    def _settings_of(self, topic: str) -> dict[str, Any]:
        """Return a topic's settings. Raises KafkaError."""
        with Admin.from_config({**PATIENCE, **self._settings}) as admin:
            entries = admin.config_entries(topic)
        return {"name": topic, "rows": documents.settings(entries)}

    def _describe_target(self, session: Session, wanted: Mapping[str, Any]) -> PlannedEnding:
        return ending_of(session, _text(wanted, "id"), commit=wanted.get("commit") is True)

    def _session(self) -> Session:
        return Session({**PATIENCE, **self._settings}, self._topic)

    def _before_end(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        session = self._session()
        try:
            ending = self._describe_target(session, wanted)
        finally:
            session.link.close()
        return {
            "id": ending.transaction.transactional_id,
            "pair": str(ending.pair),
            "question": ending.question,
            "objections": [
                {"reason": each.reason, "consent": None if each.consent is None else each.consent.value}
                for each in ending.objections
            ],
        }

    def _end(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        session = self._session()
        try:
            ending = self._describe_target(session, wanted)
            if str(ending.pair) != _text(wanted, "pair"):
                raise HttpRefusal(409, "the transaction has moved on since it was looked at: look again")
            given = wanted.get("given")
            objection = ending.standing([each for each in Consent if isinstance(given, list) and each.value in given])
            if objection is not None:
                raise HttpRefusal(409, objection.reason)
            self._log_change(ending.question)
            refusal = end_open(session, ending)
        finally:
            session.link.close()
        if refusal is not None:
            raise HttpRefusal(409, refusal)
        word = "committed" if ending.commit else "aborted"
        return {"done": f"{word} {ending.transaction.transactional_id}"}

    def _resolve(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        sink = _text(wanted, "sink")
        self._log_change(f"resolve sink {sink}")
        servers, options = sink_options(self._settings, self._topic)
        # The page refuses a batch that another sink has written as well. Only the command can commit it.
        done = resolve_sink(servers, sink, even_if_written_again=False, **options)
        unknown = f", {len(done.unknown)} unknown" if done.unknown else ""
        return {"done": f"{len(done.committed)} committed, {len(done.aborted)} aborted{unknown}"}


def _text(wanted: Mapping[str, Any], name: str) -> str:
    value = wanted.get(name)
    if not isinstance(value, str):
        raise HttpRefusal(400, f"{name} is missing")
    return value
