"""One consumer, several threads: the second is refused at once; and a poll that is interrupted loses nothing."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import fencepost
from fencepost.errors import ClosedError, UsageError, WakeupError
from fencepost.process.signal_waits import WaitQueue

PARTITION = fencepost.TopicPartition("t", 0)
LONG_MS = 600_000


@pytest.fixture
def consumer() -> Iterator[fencepost.Consumer]:
    with fencepost.Broker() as broker:
        with fencepost.Producer(broker.bootstrap_servers) as producer:
            for number in range(5):
                producer.send("t", b"%d" % number, partition=0)
            producer.flush()
        with fencepost.Consumer(broker.bootstrap_servers, group_id="g", auto_offset_reset="earliest") as reader:
            reader.assign([PARTITION])
            yield reader


class Polling:
    """A thread in a poll that finds nothing."""

    def __init__(self, consumer: fencepost.Consumer) -> None:
        self.outcome: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._consumer = consumer
        assert len(consumer.poll(5000)) == 5
        consumer.pause([PARTITION])
        self._thread = threading.Thread(target=self._poll)
        self._thread.start()
        while consumer.metrics()["polls_total"] < 2:  # looking is for everybody
            pass

    def _poll(self) -> None:
        try:
            self.outcome.put(self._consumer.poll(LONG_MS))
        except BaseException as error:  # noqa: BLE001 (the test looks at it)
            self.outcome.put(error)

    def end(self) -> Any:
        outcome = self.outcome.get()
        self._thread.join()
        return outcome


CALLS: dict[str, Callable[[fencepost.Consumer], object]] = {
    "poll": lambda consumer: consumer.poll(LONG_MS),
    "poll_arrow": lambda consumer: consumer.poll_arrow(LONG_MS),
    "poll_columns": lambda consumer: consumer.poll_columns(LONG_MS),
    "commit": lambda consumer: consumer.commit(),
    "commit_async": lambda consumer: consumer.commit_async(),
    "seek": lambda consumer: consumer.seek(PARTITION, 0),
    "seek_to_end": lambda consumer: consumer.seek_to_end(),
    "pause": lambda consumer: consumer.pause([PARTITION]),
    "assign": lambda consumer: consumer.assign([]),
    "subscribe": lambda consumer: consumer.subscribe(["t"]),
    "unsubscribe": lambda consumer: consumer.unsubscribe(),
    "iteration": lambda consumer: next(iter(consumer)),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_second_thread_is_refused(consumer: fencepost.Consumer, call: Callable[[fencepost.Consumer], object]) -> None:
    polling = Polling(consumer)
    with pytest.raises(UsageError, match="another thread is using this consumer"):
        call(consumer)
    assert consumer.assignment() == [PARTITION]
    assert consumer.positions()[PARTITION].offset == 5
    consumer.wakeup()
    assert isinstance(polling.end(), WakeupError)
    consumer.commit()  # one after the other is fine


def test_closing_ends_the_poll_of_another_thread(consumer: fencepost.Consumer) -> None:
    polling = Polling(consumer)
    consumer.close()
    assert isinstance(polling.end(), ClosedError)
    with pytest.raises(ClosedError):
        consumer.poll(0)


def test_callbacks_may_call_in_the_thread_that_polls(consumer: fencepost.Consumer) -> None:
    committed: list[object] = []

    class Listener(fencepost.RebalanceListener):
        def on_partitions_assigned(self, partitions: list[fencepost.TopicPartition]) -> None:
            consumer.seek(PARTITION, 3)
            consumer.commit({PARTITION: 3})
            committed.append(partitions)

        def on_partitions_revoked(self, partitions: list[fencepost.TopicPartition]) -> None:
            consumer.commit()  # inside close
            committed.append(partitions)

    consumer.unsubscribe()
    consumer.subscribe(["t"], Listener())
    values: list[bytes | None] = []
    while len(values) < 2:
        values += [record.value for record in consumer.poll(1000)]
    assert values == [b"3", b"4"]
    assert committed == [[PARTITION]]
    consumer.close()
    assert committed == [[PARTITION], [PARTITION]]


class Interrupting(WaitQueue[Any]):
    """Ctrl-C reaches the thread that polls when the poll's outcome is there, and before it has taken it."""

    strikes = 0
    error: type[BaseException] = KeyboardInterrupt

    def get(self, *waiting: Any, **how_long: Any) -> Any:
        found = super().get(*waiting, **how_long)
        if found is None and Interrupting.strikes:
            Interrupting.strikes -= 1
            raise self.error
        return found


@pytest.mark.parametrize("error", [KeyboardInterrupt, TimeoutError, SystemExit])
@pytest.mark.parametrize("method", ["poll", "poll_columns", "poll_arrow"])
def test_what_an_interrupted_poll_had_comes_again(
    consumer: fencepost.Consumer, method: str, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost.client.net.io_thread.WaitQueue", Interrupting)
    monkeypatch.setattr(Interrupting, "strikes", 1)
    monkeypatch.setattr(Interrupting, "error", error)
    with pytest.raises(error):
        getattr(consumer, method)(LONG_MS)
    assert not Interrupting.strikes
    assert consumer.positions()[PARTITION].offset == 0
    assert [record.value for record in consumer.poll(5000)] == [b"0", b"1", b"2", b"3", b"4"]
    assert consumer.positions()[PARTITION].offset == 5


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("method", ["poll", "poll_arrow"])
def test_what_records_were_being_made_of_comes_again(
    consumer: fencepost.Consumer, method: str, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    makers: list[threading.Thread] = []

    def strike(*_: object, **__: object) -> None:
        makers.append(threading.current_thread())
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("fencepost.client.consumer.deserializing.to_records", strike)
        patch.setattr("fencepost.client.blocking.consumer.to_table", strike)
        with pytest.raises(error):
            getattr(consumer, method)(LONG_MS)
    assert makers == [threading.current_thread()], "the thread that receives goes on meanwhile"
    assert consumer.positions()[PARTITION].offset == 0
    assert [record.value for record in consumer.poll(5000)] == [b"0", b"1", b"2", b"3", b"4"]
    assert consumer.position(PARTITION) == 5
