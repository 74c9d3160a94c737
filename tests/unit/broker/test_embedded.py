"""The broker with real sockets: inside this process, and as a command."""

from __future__ import annotations

import contextlib
import copy
import errno
import gc
import os
import pickle
import pty
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fencepost
from fencepost.broker.disk.directory_checks import DirectoryInUse
from fencepost.broker.disk.two_copies import UnusableDirectory
from fencepost.broker.embedded import Broker
from fencepost.broker.settings.table import InvalidSetting
from fencepost.errors import ConfigurationError
from fencepost.process.signal_waits import Latch
from tests.support.raw_client import Closed, RawClient

# ApiVersions v0, correlation id 7, no client id; its answer begins with the same correlation id and error 0.
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 7, -1)


def ask(address: str, request: bytes = API_VERSIONS) -> bytes:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=300) as connection:
        connection.sendall(request)
        size = int.from_bytes(receive(connection, 4))
        return receive(connection, size)


def receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def test_it_answers_and_stops_and_leaves_nothing() -> None:
    before = threading.active_count()
    broker = Broker()
    for _ in range(3):
        with broker as running:
            assert ask(running.bootstrap_servers)[:6] == struct.pack(">ih", 7, 0)
            directory = Path(running.data_dir)
            assert directory.is_dir()
        assert not directory.exists()
    assert threading.active_count() == before
    with pytest.raises(RuntimeError):
        broker.bootstrap_servers  # noqa: B018 - the access is what is tested


def test_several_run_side_by_side() -> None:
    with Broker() as first, Broker() as second:
        assert first.bootstrap_servers != second.bootstrap_servers
        assert ask(first.bootstrap_servers) == ask(second.bootstrap_servers)


def test_what_goes_wrong_at_the_start_is_raised_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting):
        Broker(config={"no.such.setting": 1})
    with Broker(data_dir=str(tmp_path)) as first:
        with pytest.raises(DirectoryInUse):
            Broker(data_dir=str(tmp_path)).start()
        port = int(first.bootstrap_servers.rpartition(":")[2])
        with pytest.raises(OSError, match=r"(?i)address"):
            Broker(port=port).start()
        assert ask(first.bootstrap_servers)
    for name in ("settings.fencepost", "settings.fencepost.copy"):
        (tmp_path / name).write_bytes(b"nonsense")
    with pytest.raises(UnusableDirectory, match=r"settings\.fencepost"):
        Broker(data_dir=str(tmp_path)).start()


@pytest.mark.parametrize(
    ("directory", "error", "words"),
    [
        ("a\0b", ConfigurationError, r"data_dir is 'a\\x00b'; a path has no NUL character"),
        ("", ConfigurationError, "data_dir is ''; it must not be empty"),
        (5, TypeError, r"data_dir is 5 \(int\); pass a path or None"),
    ],
)
def test_a_directory_that_cannot_be_one_is_refused(directory: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=f"^{words}$"):
        Broker(data_dir=directory)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_broker_is_not_copied(copied: Callable[[Broker], object]) -> None:
    """Two objects would stop one server."""
    with Broker() as broker, pytest.raises(TypeError, match="a Broker cannot be copied or pickled"):
        copied(broker)


def test_no_file_can_be_removed_to_let_a_second_broker_in(tmp_path: Path) -> None:
    with Broker(data_dir=str(tmp_path)):
        for path in tmp_path.iterdir():
            if path.is_file():
                path.unlink()
        with pytest.raises(DirectoryInUse):
            Broker(data_dir=str(tmp_path)).start()


def test_requests_may_come_in_any_pieces() -> None:
    with Broker() as broker:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=300) as connection:
            for byte in API_VERSIONS:
                connection.sendall(bytes([byte]))
            first = receive(connection, int.from_bytes(receive(connection, 4)))
            connection.sendall(API_VERSIONS * 20)
            rest = [receive(connection, int.from_bytes(receive(connection, 4))) for _ in range(20)]
    assert rest == [first] * 20


@pytest.mark.parametrize(
    "nonsense", [b"GET / HTTP/1.1\r\n\r\n", struct.pack(">i", -5), struct.pack(">ihhih", 10, 3, 99, 7, -1)]
)
def test_nonsense_closes_only_its_own_connection_and_is_not_told_each_time(
    nonsense: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with Broker() as broker:
        for _ in range(3):
            with pytest.raises((EOFError, ConnectionResetError)):
                ask(broker.bootstrap_servers, nonsense)
        assert ask(broker.bootstrap_servers)
    assert caplog.text.count("closing connection") == 1


@pytest.fixture
def hang_ups_count() -> Iterator[None]:
    """Under nohup, what is started here would ignore them, too."""
    before = signal.signal(signal.SIGHUP, lambda number, frame: None)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hang_ups_count")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_prints_where_it_listens_and_ends_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    run = [sys.executable, "-m", "fencepost.cli.main", "broker", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path)]
    with subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            if process.stdout is None or process.stderr is None:
                raise AssertionError("there are pipes")
            line = process.stdout.readline()
            assert line.startswith("listening on 127.0.0.1:"), process.stderr.read()
            assert ask(line.split()[-1])[:6] == struct.pack(">ih", 7, 0)
            process.send_signal(number)
            assert process.wait(120) == 0
            assert process.stdout.read() == ""
        finally:
            process.kill()
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    assert "cluster.id=" in (tmp_path / "meta.properties").read_text()


@pytest.mark.usefixtures("hang_ups_count")
def test_a_hang_up_of_a_service_ends_nothing(tmp_path: Path) -> None:
    run = [sys.executable, "-m", "fencepost.cli.main", "broker", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path)]
    with subprocess.Popen(
        run, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            line = process.stdout.readline()
            process.send_signal(signal.SIGHUP)
            reported = next(each for each in process.stderr if "SIGHUP" in each)
            assert "the TLS files of 0 listeners were checked; other settings are read only at a start" in reported
            assert ask(line.split()[-1])[:6] == struct.pack(">ih", 7, 0)
            process.send_signal(signal.SIGTERM)
            assert process.wait(120) == 0
        finally:
            process.kill()


@pytest.mark.usefixtures("hang_ups_count")
def test_a_hang_up_of_its_terminal_ends_it_cleanly(tmp_path: Path) -> None:
    run = [sys.executable, "-m", "fencepost.cli.main", "broker", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path)]
    ours, theirs = pty.openpty()
    with subprocess.Popen(run, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("listening on ")
            process.send_signal(signal.SIGHUP)
            assert process.wait(120) == 0
        finally:
            process.kill()
            os.close(ours)
            os.close(theirs)
    assert (tmp_path / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("output", ["nobody reads", "closed"])
def test_the_command_serves_and_ends_cleanly_also_if_its_output_cannot_be_written(tmp_path: Path, output: str) -> None:
    run = [sys.executable, "-m", "fencepost.cli.main", "broker", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path)]
    if output == "closed":
        run = ["/bin/sh", "-c", 'exec "$@" <&- >&-', "sh", *run]
    reader, writer = os.pipe()
    os.close(reader)
    with subprocess.Popen(run, stdout=writer, stderr=subprocess.PIPE, text=True) as process:
        os.close(writer)
        try:
            if process.stderr is None:
                raise AssertionError("there is a pipe")
            log = iter(process.stderr.readline, "")
            line = next((line for line in log if "listening on" in line), "")
            assert "could not be written" in line
            address = line.partition("listening on ")[2].partition(";")[0]
            assert ask(address)[:6] == struct.pack(">ih", 7, 0)
            process.send_signal(signal.SIGTERM)
            assert process.wait(120) == 0
        finally:
            process.kill()
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_the_command_refuses_what_it_does_not_know() -> None:
    run = [sys.executable, "-m", "fencepost.cli.main", "broker", "--listen", "127.0.0.1:0", "--config", "no.such=1"]
    done = subprocess.run(run, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 2
    assert "no.such" in done.stderr
    assert done.stdout == ""


def test_it_stops_under_load_and_leaves_no_task(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """The end of one sync begins the next, for what came meanwhile: both are waited for."""
    for round_ in range(10):
        with Broker({"fsync": "commit"}, data_dir=str(tmp_path / str(round_))) as broker:
            with RawClient(broker.bootstrap_servers) as client:
                topics = [client.create_topic(f"t{number}") for number in range(4)]
            stopping = threading.Event()
            threads = [threading.Thread(target=produce, args=(broker, topic, stopping)) for topic in topics]
            for thread in threads:
                thread.start()
            time.sleep(0.1)
        stopping.set()
        for thread in threads:
            thread.join()
        gc.collect()
    assert "destroyed" not in caplog.text


def produce(broker: Broker, topic: str, stopping: threading.Event) -> None:
    """Until the broker is gone."""
    try:
        with RawClient(broker.bootstrap_servers) as client:
            while not stopping.is_set():
                client.produce(topic, [b"x"])
    except (OSError, Closed):
        return


def held_below(directory: Path) -> list[str]:
    """Return the names of files below the directory that this process has open."""
    held = []
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the one that listed the others
            held.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return [name for name in held if name.startswith(str(directory))]


def test_no_end_leaves_files_open(tmp_path: Path) -> None:
    with Broker(data_dir=str(tmp_path / "a"), fsync="commit") as broker:
        with fencepost.Producer(broker.bootstrap_servers, transactional_id="x") as producer:
            producer.init_transactions()
            for number in range(3):
                with producer.transaction():
                    producer.send("t", b"%d" % number)
                broker.restart(clean=False)
                held = held_below(tmp_path)
                assert held
                assert len(held) == len(set(held)), "after a kill"
            broker.faults.disk.fail_sync(errno.EIO, path="__transaction_state")
            producer.begin_transaction()
            producer.send("t", b"at last")
            broker.wait_for_failure()
            assert held_below(tmp_path) == [], "after a failure"
            broker.restart()
            producer.abort_transaction()
        port = int(broker.bootstrap_servers.rpartition(":")[2])
        with pytest.raises(OSError, match=r"(?i)address"):
            Broker(data_dir=str(tmp_path / "b"), port=port).start()
        assert held_below(tmp_path / "b") == [], "after a start that failed"
    assert held_below(tmp_path) == [], "after a clean end"


@pytest.mark.parametrize("act", [Broker.stop, Broker.restart])
def test_a_wait_for_a_failure_ends_when_the_broker_is_stopped(
    act: Callable[[Broker], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    raised: list[BaseException] = []
    waits = threading.Event()

    def reported(latch: Latch, timeout_s: float | None = None) -> bool:
        if timeout_s == 600:
            waits.set()
        return plain_wait(latch, timeout_s)

    plain_wait = Latch.wait
    monkeypatch.setattr(Latch, "wait", reported)

    def wait() -> None:
        try:
            broker.wait_for_failure(600)
        except Exception as error:  # noqa: BLE001 (judged below)
            raised.append(error)

    with Broker() as broker:
        waiter = threading.Thread(target=wait)
        waiter.start()
        assert waits.wait(60)
        act(broker)
        waiter.join(60)
    assert [type(error) for error in raised] == [RuntimeError]
    assert str(raised[0]) == "the broker was stopped before it failed"


def test_a_broker_that_runs_on_has_not_failed() -> None:
    with Broker() as broker, pytest.raises(TimeoutError, match=r"the broker has not failed in 0\.05 s"):
        broker.wait_for_failure(0.05)
