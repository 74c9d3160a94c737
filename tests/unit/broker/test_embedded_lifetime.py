"""Start, stop and restart of an embedded broker: struck by signal handlers, and called by several threads at once."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest

import fencepost
from fencepost.broker import embedded
from fencepost.errors import KafkaTimeoutError
from tests.support import interrupted_calls as calls
from tests.support.strikes import Strikes

# An exception may also come while Python runs a finalizer, and is then only printed.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

METHODS: dict[str, Callable[[fencepost.Broker], object]] = {
    "start": fencepost.Broker.start,
    "stop": fencepost.Broker.stop,
    "restart": fencepost.Broker.restart,
    "restart as after a kill": lambda broker: broker.restart(clean=False),
}


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Provide the directory below which brokers create theirs."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with calls.nothing_hangs(300):
        yield tmp_path


def threads() -> set[threading.Thread]:
    """Return the threads of brokers."""
    return {each for each in threading.enumerate() if each.name == "fencepost-broker" and each.is_alive()}


def struck(call: Callable[[], object], at: int, handler: Callable[[], object]) -> tuple[bool, BaseException | None]:
    """Run the call with the handler at one of its points. Return true if it came, and the call's error."""
    strikes = Strikes(at, handler)
    try:
        strikes.during(call)
    except (KeyboardInterrupt, RuntimeError) as error:
        return strikes.struck, error
    return strikes.struck, None


@pytest.mark.parametrize("method", METHODS)
def test_an_interrupted_call_leaves_nothing_behind(method: str, temporary: Path) -> None:
    others = threads()
    for at in count():
        broker = fencepost.Broker()
        if method != "start":
            broker.start()
        came, error = struck(lambda: METHODS[method](broker), at, calls.raising(KeyboardInterrupt))  # noqa: B023
        # CPython itself turns an interruption of Thread.start() into this error at two points.
        assert not came or isinstance(error, KeyboardInterrupt) or "release unlocked lock" in str(error)
        broker.stop()
        assert threads() == others, at
        assert os.listdir(temporary) == [], at
        assert broker not in embedded._open
        with broker:
            broker.metrics()
        assert os.listdir(temporary) == [], at
        if not came:
            break
    assert at > 20


@pytest.mark.parametrize("method", METHODS)
def test_a_signal_handler_stops_the_broker_inside_of_a_call(method: str, temporary: Path) -> None:
    others = threads()
    refused = 0
    for at in count():
        broker = fencepost.Broker()
        if method != "start":
            broker.start()
        came, error = struck(lambda: METHODS[method](broker), at, broker.stop)  # noqa: B023
        if error is not None:
            refused += 1
            assert "the broker was stopped before it had started" in str(error) or str(error) == (
                "the broker does not run"
            )
            with pytest.raises(RuntimeError, match="the broker does not run"):
                broker.bootstrap_servers  # noqa: B018 (the access is tested)
        broker.stop()
        assert threads() == others, at
        assert os.listdir(temporary) == [], at
        if not came:
            break
    assert at > 20
    assert (refused > 0) == (method != "stop")


def test_of_two_threads_that_start_it_one_does() -> None:
    with ThreadPoolExecutor(4) as pool:
        for _ in range(25):
            broker = fencepost.Broker()
            together = threading.Barrier(4)

            def start(broker: fencepost.Broker = broker, together: threading.Barrier = together) -> str:
                together.wait()
                try:
                    return repr(broker.start())
                except RuntimeError as error:
                    return str(error)

            answers = [future.result() for future in [pool.submit(start) for _ in range(4)]]
            assert sorted(answers)[1:] == ["the broker runs already"] * 3
            broker.metrics()
            broker.stop()


def test_each_of_several_stops_returns_when_the_logs_are_closed(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        for number in range(25):
            directory = tmp_path / f"data-{number}"
            broker = fencepost.Broker(data_dir=directory).start()
            with fencepost.Admin(broker.bootstrap_servers) as admin:
                admin.create_topic("t", 30)
            together = threading.Barrier(4)

            def stop(
                broker: fencepost.Broker = broker, together: threading.Barrier = together, at: Path = directory
            ) -> bool:
                together.wait()
                broker.stop()
                return (at / ".kafka_cleanshutdown").exists()

            assert all(future.result() for future in [pool.submit(stop) for _ in range(4)])


def test_start_and_stop_from_several_threads_leave_nothing(temporary: Path) -> None:
    broker, others = fencepost.Broker(), threads()

    def use(number: int) -> None:
        for turn in range(30):
            with contextlib.suppress(RuntimeError):  # another thread was faster
                (broker.start, broker.stop, broker.restart)[(number + turn) % 3]()

    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(use, number) for number in range(4)]:
            future.result()
    broker.stop()
    assert threads() == others
    assert os.listdir(temporary) == []


@pytest.mark.parametrize("act", [fencepost.Broker.stop, fencepost.Broker.restart])
@pytest.mark.parametrize(
    "call",
    [
        fencepost.Broker.metrics,
        fencepost.Broker.settle,
        lambda broker: broker.clock.advance(5),
        lambda broker: broker.faults.disconnect("nobody"),
    ],
    ids=["metrics", "settle", "advance", "disconnect"],
)
def test_a_call_ends_when_the_broker_does(
    act: Callable[[fencepost.Broker], object], call: Callable[[fencepost.Broker], object]
) -> None:
    """The broker may end after a call was accepted, and before it is carried out."""
    answered = 0
    for _ in range(20):
        broker = fencepost.Broker().start()
        began = threading.Event()

        def work(broker: fencepost.Broker = broker, began: threading.Event = began) -> int:
            done = 0
            with contextlib.suppress(RuntimeError):
                while done < 10_000:
                    call(broker)
                    done += 1
                    began.set()
            return done

        with ThreadPoolExecutor(2) as pool:
            workers = [pool.submit(work) for _ in range(2)]
            assert began.wait(60)
            act(broker)
            broker.stop()
            answered += sum(worker.result() for worker in workers)
    assert answered


def test_a_broker_that_has_failed_is_stopped_before_it_is_started_again(tmp_path: Path) -> None:
    broker = fencepost.Broker(data_dir=tmp_path / "data", fsync="commit").start()
    broker.faults.disk.fail_sync(errno.EIO, path="__transaction_state")
    with (
        pytest.raises(KafkaTimeoutError),
        fencepost.Producer(broker.bootstrap_servers, transactional_id="x", max_block_ms=1_000) as producer,
    ):
        producer.init_transactions()
    broker.wait_for_failure()
    with pytest.raises(RuntimeError, match=r"the broker has failed, call stop\(\) or restart\(\): .*OSError"):
        broker.start()
    with pytest.raises(OSError, match="EIO"):
        broker.stop()
    broker.stop()
    with broker:
        broker.metrics()


FULL = """
import os, resource, sys
import fencepost
if sys.argv[1] == "broker":
    def act():
        with fencepost.Broker():
            pass
else:
    def act():
        with fencepost.Producer("127.0.0.1:1"):
            pass
act  # its modules are loaded
fencepost.Broker, fencepost.Producer
os.makedirs(os.environ["TMPDIR"], exist_ok=True)
used = max(int(number) for number in os.listdir("/proc/self/fd"))
for spare in range(40):
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + spare, 4096))
    try:
        act()
    except OSError as error:
        print(type(error).__name__, error)
    else:
        print("done with", spare)
        break
"""


@pytest.mark.parametrize("client", ["broker", "producer"])
def test_a_start_without_descriptors_is_refused(client: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL, client],
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *refused, last, _ = done.stdout.split("\n")
    assert last.startswith("done with ")
    assert len(refused) > 10
    reasons = {each for each in refused if "an event loop needs 12 free descriptors" in each}
    assert len(reasons) == 1
    assert os.listdir(tmp_path / "tmp") == []


SEVERAL = """
import errno, sys, fencepost
brokers = [fencepost.Broker(data_dir=f"{sys.argv[1]}/{number}", fsync="commit").start() for number in range(5)]
for broker in brokers[2:4]:
    broker.faults.disk.fail_sync(errno.EIO, path="__transaction_state")
    try:
        with fencepost.Producer(broker.bootstrap_servers, transactional_id="x", max_block_ms=1_000) as producer:
            producer.init_transactions()
    except fencepost.errors.KafkaTimeoutError:
        pass
    broker.wait_for_failure()
"""


def test_the_end_of_the_program_closes_all_others_if_one_has_failed(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SEVERAL, str(tmp_path)], capture_output=True, text=True, timeout=120, check=False
    )
    closed = [(tmp_path / str(number) / ".kafka_cleanshutdown").exists() for number in range(5)]
    assert closed == [True, True, False, False, True], done.stderr
    assert done.stderr.count("did not end cleanly") == 2
