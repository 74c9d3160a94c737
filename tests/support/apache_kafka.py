"""A real Apache Kafka for tests: one KRaft node (broker and controller) on free ports of 127.0.0.1.

The jars come from Maven Central through the ordinary `mvn` client, once, into a cache folder
(`$XDG_CACHE_HOME/fencepost`, by default `~/.cache/fencepost`). Java >= 17 and Maven have to be installed;
without them `Unavailable` is raised with a reason that tests turn into a skip (see tests/conftest.py).

    with ApacheKafka(properties={"transaction.max.timeout.ms": 3000}) as kafka:
        connect_to(kafka.bootstrap_servers)

    python -m tests.support.apache_kafka --port 9092      # in the foreground until SIGTERM

KAFKA_RELEASE=4.3.1 in the environment takes another release of 4.x for a whole test run.
"""

from __future__ import annotations

import argparse
import atexit
import base64
import contextlib
import fcntl
import functools
import hashlib
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

import fencepost
from fencepost_lab.torture.child_process import ChildProcess
from tests.support.class_archive import archived

REFERENCE = "4.4.0"
"""The release that docs/differences-from-kafka.md is about."""
VERSION = os.environ.get("KAFKA_RELEASE") or REFERENCE
POM = Path(__file__).with_name("apache-kafka.pom.xml")
CLUSTER_ID = "ZmVuY2Vwb3N0LXRlc3RzLQ"  # any 16 bytes in URL-safe base64
START_TIMEOUT_S = 90.0
SHORT_LIVED = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""For a JVM that lives for some tests: it compiles less, and takes half the CPU time to start and to warm up."""
TEST_NODE = (*SHORT_LIVED, "-Xms128m", "-Dorg.apache.logging.log4j.level=WARN")
TOOL = (*SHORT_LIVED, "-Xmx256m", "-Dorg.apache.logging.log4j.level=ERROR")

Setting = str | int | bool

DEFAULT_PROPERTIES: Mapping[str, Setting] = {
    "process.roles": "broker,controller",
    "node.id": 1,
    "num.partitions": 1,
    "auto.create.topics.enable": True,
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 5,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 5,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "share.coordinator.state.topic.num.partitions": 5,
    "group.initial.rebalance.delay.ms": 0,
    "transaction.two.phase.commit.enable": True,
    "unstable.api.versions.enable": True,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
    # Tests write records of any time. By default each look for old segments, every five minutes, would delete those.
    "log.retention.ms": -1,
    # After kill() the restarted node waits for its own old session to expire; the default of 9 s is most of a restart.
    "broker.session.timeout.ms": 4000,
    "broker.heartbeat.interval.ms": 1000,
    # By default the controller writes something every half second, which is a quarter of what an idle node costs.
    "metadata.max.idle.interval.ms": 0,
    # By default 128 MB, all of them written to: a seventh of what a start costs.
    "log.cleaner.dedupe.buffer.size": 2 * 1024 * 1024,
    # Every thread looks for work a few times a second.
    "num.network.threads": 2,
    "num.io.threads": 4,
    "group.coordinator.threads": 1,
    "share.coordinator.threads": 1,
}

AUTHORIZER_PROPERTIES: Mapping[str, Setting] = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": True,
    "super.users": "User:ANONYMOUS",
}


class Unavailable(Exception):
    """Apache Kafka cannot be run on this machine; the text says what is missing."""


class StartFailed(Exception):
    """Apache Kafka was started and did not come up; the text ends with its output."""


# --- what has to be there: java, mvn, jars ---


def java_command() -> str:
    """The path of a `java` >= 17: from JAVA_HOME, else from PATH. Raises `Unavailable`."""
    home = os.environ.get("JAVA_HOME")
    candidates = [shutil.which("java", path=str(Path(home) / "bin"))] if home else []
    candidates.append(shutil.which("java"))
    seen = []
    for candidate in candidates:
        if candidate is None:
            continue
        version = _java_major_version(candidate)
        if version >= 17:
            return candidate
        seen.append(f"{candidate} is Java {version}")
    raise Unavailable(
        "Apache Kafka needs Java >= 17: " + ("; ".join(seen) or "there is no `java` in JAVA_HOME or PATH")
    )


def _java_major_version(java: str) -> int:
    text = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', text)
    return int(found.group(1)) if found else 0


def cache_root() -> Path:
    """Return the folder for everything that tests fetch or compile once."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fencepost"


def cache_folder(pom: Path, release: str | None) -> Path:
    """Return the folder for the jars of exactly this pom. A pom without a release gets `release`."""
    digest = hashlib.sha256(pom.read_bytes()).hexdigest()[:12]
    name = pom.name.removesuffix(".pom.xml")
    return cache_root() / (f"{name}-{digest}" if release is None else f"{name}-{release}-{digest}")


def jars_folder(pom: Path = POM, goal: str = "dependency:copy-dependencies", release: str | None = None) -> Path:
    """The folder with all jars of a pom, filled by Maven if this is the first time. Raises `Unavailable`."""
    if pom == POM:
        release = release or VERSION

    def fetch(target: Path) -> None:
        maven = shutil.which("mvn")
        if maven is None:
            raise Unavailable("Apache Kafka's jars are fetched with Maven, and there is no `mvn` in PATH")
        java_command()
        reported = [f"-DoutputDirectory={target}", *([] if release is None else [f"-Drelease={release}"])]
        command = [maven, "-B", "-q", "-f", str(pom), goal, *reported]
        run = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        if run.returncode != 0:
            raise Unavailable(f"Maven could not fetch what {pom.name} names: {(run.stdout + run.stderr)[-2000:]}")

    return create_once(cache_folder(pom, release), fetch)


def create_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """The folder, whole: made under another name if this is the first time."""
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.parent / "apache-kafka.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test runs may start on an empty cache at once
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=folder.parent) as unfinished:
                target = Path(unfinished) / "made"
                make(target)
                target.rename(folder)
    return folder


def unavailable_reason() -> str | None:
    """Return the reason why Apache Kafka cannot run here, or None. Fetches the jars if they are missing."""
    try:
        java_command()
        jars_folder()
    except Unavailable as reason:
        return str(reason)
    return None


def java_class_command(
    class_name: str, *arguments: str, jvm_options: Sequence[str] = (), jars: Path | None = None
) -> list[str]:
    """Return the command line that runs a class of Kafka's jars, of VERSION unless `jars` names others."""
    return [java_command(), *jvm_options, "-cp", f"{jars or jars_folder()}/*", class_name, *arguments]


def run_kafka_class(
    class_name: str, *arguments: str, stdin: str = "", timeout_s: float = 120.0
) -> subprocess.CompletedProcess[str]:
    """Run one of Kafka's command line classes to its end; the return code is the caller's to check.

    For example `run_kafka_class("org.apache.kafka.tools.DumpLogSegments", "--files", path, "--print-data-log")`, or
    `run_kafka_class("org.apache.kafka.tools.TransactionsCommand", "--bootstrap-server", address, "list")`.
    """
    command = java_class_command(class_name, *arguments, jvm_options=(*TOOL, *class_archive()))
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False)


# --- the node ---


class ApacheKafka:
    """One node. `start`, `stop`, `kill`, `restart`, or the context manager; each may be called in any state."""

    heap = "512m"
    """The most that its JVM takes for objects."""
    prefix: Sequence[str] = ()
    """Words before the node's command, for example those that enter a network namespace."""
    starter_outlives_it = False
    """True if the starting thread, though not the main thread, lives as long as the node may."""

    def __init__(
        self,
        properties: Mapping[str, Setting] | None = None,
        *,
        port: int = 0,
        host: str = "127.0.0.1",
        authorizer: bool = False,
        jvm_options: Sequence[str] | None = None,
        format_arguments: Sequence[str] = (),
        listeners: Mapping[str, str] | None = None,
    ) -> None:
        """`properties` go over the defaults of this file; `port` 0 picks a free one; `authorizer` turns ACLs on.

        `jvm_options` go behind `heap`, in the place of TEST_NODE and of the archive of classes. `format_arguments` go
        to `kafka-storage format`: `--feature transaction.version=1`, `--add-scram ...`. `listeners`: further ones,
        name -> security protocol, beside PLAINTEXT; see `address_of`.
        """
        self.host = host
        self.port = port
        self._fixed_port = port != 0
        self._controller_port = 0
        self._jvm_options = None if jvm_options is None else tuple(jvm_options)
        self._format_arguments = tuple(format_arguments)
        self._listeners = dict(listeners or {})
        self._listener_ports: dict[str, int] = {}
        self._settings: dict[str, Setting] = {**DEFAULT_PROPERTIES, **(AUTHORIZER_PROPERTIES if authorizer else {})}
        self._extra: dict[str, Setting] = dict(properties or {})
        self._folder: Path | None = None
        self._child: ChildProcess | None = None

    @property
    def bootstrap_servers(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int | None:
        """The process id of the running node, None when it does not run."""
        return None if self._child is None else self._child.pid

    @property
    def is_running(self) -> bool:
        return self.pid is not None

    @property
    def data_directory(self) -> Path:
        """Kafka's `log.dirs`: partitions are folders in here. Gone after `stop`."""
        return self._home() / "data"

    def output(self) -> str:
        """Return the warnings and errors that the node has printed."""
        path = self._home() / "output.txt"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self) -> Self:
        """Start the node and wait until it answers. Raises `Unavailable`, `StartFailed`."""
        if self._child is not None:
            return self
        self._prepare()
        fresh = not (self.data_directory / "meta.properties").exists()
        attempts = 3 if fresh and not self._fixed_port else 1
        for attempt in range(attempts):
            try:
                self._start_once(fresh)
            except StartFailed as failure:
                self._end_process(signal.SIGKILL)
                # A port picked as free can be taken before Java binds it.
                if attempt + 1 == attempts or "Address already in use" not in str(failure):
                    self.stop()
                    raise
                shutil.rmtree(self.data_directory, ignore_errors=True)
            else:
                return self
        raise StartFailed("no attempt was made")

    def stop(self, *, keep_data: bool = False) -> None:
        """Controlled shutdown if the data are to be read or started again; else they are removed, and it is killed."""
        self._end_process(signal.SIGTERM if keep_data else signal.SIGKILL)
        if self._folder is not None and not keep_data:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
            atexit.unregister(self.stop)

    def kill(self) -> None:
        """SIGKILL; the data directory stays for `restart`."""
        self._end_process(signal.SIGKILL)

    def restart(self, properties: Mapping[str, Setting] | None = None) -> None:
        """Start again on the same data and the same port; `properties` are added to those of the first start."""
        self.stop(keep_data=True)
        self._extra.update(properties or {})
        self.start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _home(self) -> Path:
        if self._folder is None:
            raise RuntimeError("this Apache Kafka is not running and has no data")
        return self._folder

    def _prepare(self) -> None:
        if self._folder is None:
            self._jars()
            self._folder = Path(tempfile.mkdtemp(prefix="fencepost-kafka-"))
            atexit.register(self.stop)

    def _start_once(self, fresh: bool) -> None:
        if fresh:
            self._pick_ports()
        self._launch(fresh)
        self._wait_until_it_answers()

    def _launch(self, fresh: bool) -> None:
        configuration = self._home() / "server.properties"
        configuration.write_text(self._configuration())
        if fresh:
            self._format(configuration)
        self._child = self._run_java("kafka.Kafka", str(configuration))

    def _run_java(self, class_name: str, *arguments: str) -> ChildProcess:
        options, jars = self._jvm_options, self._jars()
        if options is None:
            options = (*TEST_NODE, *(class_archive() if jars == jars_folder() else ()))
        # Who is killed leaves the libraries that it has unpacked there.
        options = (f"-Xmx{self.heap}", f"-Djava.io.tmpdir={self._home()}", *options)
        command = java_class_command(class_name, *arguments, jvm_options=options, jars=jars)
        child = ChildProcess(
            [*self.prefix, *command],
            self._home() / "output.txt",
            folder=self._home(),
            starter_stays=self.starter_outlives_it,
        )
        child.launch()
        return child

    def _jars(self) -> Path:
        return jars_folder()

    def _pick_ports(self) -> None:
        with contextlib.ExitStack() as stack:
            servers = [
                stack.enter_context(socket.create_server((self.host, 0))) for _ in range(2 + len(self._listeners))
            ]
            free = [server.getsockname()[1] for server in servers]
        self._controller_port = free[0]
        if not self._fixed_port:
            self.port = free[1]
        self._listener_ports = dict(zip(self._listeners, free[2:], strict=True))

    def _configuration(self) -> str:
        settings: dict[str, Setting] = {
            **self._settings,
            "listeners": f"{self._addresses()},CONTROLLER://{self.host}:{self._controller_port}",
            "advertised.listeners": self._addresses(),
            "listener.security.protocol.map": ",".join(
                ["PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT", *(f"{n}:{p}" for n, p in self._listeners.items())]
            ),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@{self.host}:{self._controller_port}",
            "log.dirs": str(self.data_directory),
            **self._extra,
        }
        return "".join(f"{key}={_text(value)}\n" for key, value in settings.items())

    def _addresses(self) -> str:
        ports = {"PLAINTEXT": self.port, **self._listener_ports}
        return ",".join(f"{name}://{self.host}:{port}" for name, port in ports.items())

    def address_of(self, listener: str) -> str:
        """The bootstrap address of one of the further `listeners`."""
        return f"{self.host}:{self._listener_ports[listener]}"

    def _format(self, configuration: Path) -> None:
        """A JVM does it once for each kind of node; all get the files that this has made, and are told who they are."""
        settings = {**self._settings, **self._extra}
        unstable = sorted(f"{name}={value}" for name, value in settings.items() if "unstable" in name)
        kind = "\n".join([str(self._jars()), CLUSTER_ID, *unstable, *self._format_arguments])
        folder = self._jars().parent / f"formatted-{hashlib.sha256(kind.encode()).hexdigest()[:16]}"

        def make(target: Path) -> None:
            self._format_anew(configuration)
            shutil.move(self.data_directory, target)

        shutil.copytree(create_once(folder, make), self.data_directory)
        properties = self.data_directory / "meta.properties"
        text = re.sub(r"(?m)^node\.id=.*", f"node.id={settings['node.id']}", properties.read_text())
        identity = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        properties.write_text(re.sub(r"(?m)^directory\.id=.*", f"directory.id={identity}", text))

    def _format_anew(self, configuration: Path) -> None:
        arguments = ("format", "-t", CLUSTER_ID, "-c", str(configuration), *self._format_arguments)
        command = java_class_command("kafka.tools.StorageTool", *arguments, jvm_options=TOOL, jars=self._jars())
        run = subprocess.run(command, capture_output=True, text=True, timeout=START_TIMEOUT_S, check=False)
        if run.returncode != 0:
            raise StartFailed(f"kafka.tools.StorageTool failed: {run.stdout}{run.stderr}")

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if not self.is_running:
                raise StartFailed(f"Apache Kafka ended while starting:\n{self.output()[-4000:]}")
            if brokers_and_lagging_partitions(self.host, self.port)[0] >= 1 and self._has_its_port():
                return
            time.sleep(0.05)
        raise StartFailed(f"Apache Kafka did not answer within {START_TIMEOUT_S} s:\n{self.output()[-4000:]}")

    def _has_its_port(self) -> bool:
        """True if this node listens there, and not another one that took the port before this one could bind it."""
        if self.pid is None:
            return False
        with contextlib.suppress(psutil.NoSuchProcess):
            starter = psutil.Process(self.pid)
            for process in (starter, *starter.children(recursive=True)):
                found = process.net_connections("tcp")
                if any(each.status == psutil.CONN_LISTEN and each.laddr.port == self.port for each in found):
                    return True
        return False

    def _end_process(self, kind: signal.Signals) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.end(kind)


@functools.cache
def class_archive() -> tuple[str, ...]:
    """The option of a JVM whose class path begins with Kafka's jars."""

    def run_once(option: str) -> None:
        with ApacheKafka(jvm_options=(*TEST_NODE, option)) as kafka:
            with fencepost.Producer(kafka.bootstrap_servers, transactional_id="once") as producer:
                producer.init_transactions()
                with producer.transaction():
                    producer.send("once", b"a record")
            with fencepost.Consumer(kafka.bootstrap_servers, group_id="once", auto_offset_reset="earliest") as consumer:
                consumer.subscribe(["once"])
                while not consumer.poll(1000):
                    pass
                consumer.commit()
            kafka.stop(keep_data=True)  # only a JVM that ends by itself writes its archive

    return archived(java_command(), jars_folder(), run_once)


def _text(value: Setting) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def brokers_and_lagging_partitions(host: str, port: int) -> tuple[int, int]:
    """Ask a node for metadata of all topics.

    Written by hand, so that this file does not depend on the code that it is used to judge.

    Returns:
        The number of brokers, and of partitions not all of whose replicas are in sync; (0, 0) while nothing answers.
    """
    header = struct.pack(">hhih", 3, 1, 0, -1)  # api key Metadata, version, correlation id, no client id
    request = header + struct.pack(">i", -1)  # all topics
    try:
        with socket.create_connection((host, port), timeout=5.0) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            (size,) = struct.unpack(">i", _receive(connection, 4))
            answer = _Fields(_receive(connection, size)[4:])  # behind the correlation id
    except OSError:
        return 0, 0
    brokers = answer.number()
    for _ in range(brokers):
        answer.skip(4)
        answer.skip_text()
        answer.skip(4)
        answer.skip_text()
    answer.skip(4)  # the controller
    lagging = 0
    for _ in range(answer.number()):
        answer.skip(2)
        answer.skip_text()
        answer.skip(1)
        for _ in range(answer.number()):
            answer.skip(10)
            replicas = answer.number()
            answer.skip(4 * replicas)
            in_sync = answer.number()
            answer.skip(4 * in_sync)
            lagging += in_sync < replicas
    return brokers, lagging


class _Fields:
    """The fields of an answer, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def number(self) -> int:
        """Return the next four bytes: a number, or the length of an array."""
        (number,) = struct.unpack_from(">i", self._data, self._position)
        self._position += 4
        return int(number)

    def skip(self, size: int) -> None:
        self._position += size

    def skip_text(self) -> None:
        """Skip a text that may be null, which has the length -1."""
        (size,) = struct.unpack_from(">h", self._data, self._position)
        self._position += 2 + max(0, size)


def _receive(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionResetError("closed in the middle of an answer")
        data += part
    return bytes(data)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run Apache Kafka in the foreground until SIGTERM or Ctrl-C.")
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0 (the default) picks a free one")
    parser.add_argument("--authorizer", action="store_true", help="turn ACLs on (everything allowed where none is set)")
    parser.add_argument("--property", action="append", default=[], metavar="KEY=VALUE", help="a broker setting")
    options = parser.parse_args(arguments)
    properties = dict(item.split("=", 1) for item in options.property)
    stopped = threading.Event()
    for kind in (signal.SIGTERM, signal.SIGINT):
        signal.signal(kind, lambda _number, _frame: stopped.set())
    try:
        with ApacheKafka(properties, port=options.port, authorizer=options.authorizer) as kafka:
            print(f"listening on {kafka.bootstrap_servers}", flush=True)
            while not stopped.wait(0.5):
                if kafka.pid is None:
                    print(f"Apache Kafka ended by itself:\n{kafka.output()[-4000:]}", file=sys.stderr)
                    return 1
    except Unavailable as reason:
        print(reason, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
