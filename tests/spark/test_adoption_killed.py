"""`fencepost spark adopt` and `release` as processes, killed with SIGKILL at each request that changes something.

A first run counts these requests. Then each of them is the last one of a process: the broker has not executed it, or
has executed it and not answered. Afterwards the query is started too early, and the command is repeated.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any, Final

import pytest

from fencepost import Admin
from fencepost.broker.api.apis import SERVED
from fencepost.broker.embedded import Broker
from fencepost.broker.embedded_control import Fault
from fencepost.spark.errors import SupersededError, UnknownQueryError
from fencepost.spark.sink.plan_steps import PreparedTask, SkippedTask
from fencepost.spark.sink.writer import StreamWriter
from tests.spark.moved_query import COLUMNS, Query, forget
from tests.support.command_runs import CommandRun

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(2400)]

DECISIONS: Final = "__fencepost_decisions"
READS: Final = ("ApiVersions", "Fetch", "FindCoordinator", "ListOffsets", "ListTransactions", "Metadata")
PATIENCE_S: Final = 600.0


@pytest.fixture(scope="module", params=[True, False], ids=["durable", "timed"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker({"transaction.two.phase.commit.enable": request.param, "log.retention.ms": -1}) as broker:
        assert Query(broker, tmp_path_factory.mktemp("first")).adopt("--yes") == 0  # makes the decision topic
        yield broker


@dataclass
class Moved:
    """A query in the state in which the command meets it. `zombie`: commits what a task has left open."""

    query: Query
    words: list[str]
    zombie: Callable[[], object] | None = None
    stopped: set[Path] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.stopped = set((self.query.folder / "offsets").iterdir())

    def repeat(self) -> int:
        """The command once more, in this process."""
        return self.query.command(*self.words, "--yes")

    def start(self, batch_id: int) -> Any:
        """The query here: the message of its task, or None if the sink refuses it and the checkpoint is as before."""
        try:
            return self.query.batch(batch_id)
        except UnknownQueryError:
            for path in set((self.query.folder / "offsets").iterdir()) - self.stopped:
                path.unlink()
            return None


def finished(broker: Broker, folder: Path) -> Moved:
    """No sink has written to this cluster before."""
    query = Query(broker, folder)
    with Admin(query.servers) as admin:
        if DECISIONS in admin.list_topics():
            admin.delete_topic(DECISIONS)
    return Moved(query, ["adopt", "--topic", query.topic])


def begun(*written: str) -> Callable[[Broker, Path], Moved]:
    """Batch 2 was begun, and so much of it is in the output. The missing rows are to be written."""

    def make(broker: Broker, folder: Path) -> Moved:
        query = Query(broker, folder, begun=True)
        query.produce(*written)
        choice = ["--begun", "missing"] if len(written) == 1 else []
        return Moved(query, ["adopt", "--topic", query.topic, *query.describe(2, keep=True), *choice])

    return make


def here(broker: Broker, folder: Path) -> Moved:
    """It came here after batch 2, has finished batch 3, and left the rows of batch 4 in an open transaction."""
    query = Query(broker, folder)
    assert query.adopt("--yes") == 0
    query.batch(3)
    forget()
    writer = query.plan(4)
    message = query.message(writer, 4)

    def zombie() -> None:
        forget()
        StreamWriter(writer._options, COLUMNS).commit([message], 4)

    return Moved(query, ["release"], zombie)


def goes_on_with(batch_id: int, first: type) -> Callable[[Moved], None]:
    """Return a check of an adoption, after which the sink takes this batch so, and then the next one."""

    def check(moved: Moved) -> None:
        query = moved.query
        taken = moved.start(batch_id)  # too early, unless all that the sink must know was written
        assert moved.repeat() == 0
        taken = taken or query.batch(batch_id)
        assert isinstance(taken, first)
        assert isinstance(query.batch(batch_id + 1), PreparedTask)
        assert query.output() == query.expected(batch_id + 1)

    return check


def given_back(moved: Moved) -> None:
    """The release is repeated. Spark's own sink writes the batch, and the query comes here again."""
    query = moved.query
    assert moved.repeat() == 0
    assert query.known() == (3, 3, True)
    assert moved.zombie is not None
    with pytest.raises((SupersededError, UnknownQueryError)):
        moved.zombie()
    assert query.output() == query.expected(3)
    query.produce(*query.values(4))
    query.finished(4)
    assert query.adopt("--yes") == 0
    query.batch(5)
    assert query.output() == query.expected(5)


def stays_here(moved: Moved) -> None:
    """The person does not repeat the release but starts the query here: it writes the batch, or is refused."""
    query = moved.query
    if moved.start(4) is None:
        assert query.known() == (3, 3, True)
        assert query.output() == query.expected(3)
        assert query.adopt("--yes", *query.describe(4), "--other-writers") == 0  # the query's own, of before
        query.batch(4)
    assert query.output() == query.expected(4)
    assert moved.zombie is not None
    with pytest.raises((SupersededError, UnknownQueryError)):
        moved.zombie()
    assert query.output() == query.expected(4)


SCENES: Final[dict[str, tuple[Callable[[Broker, Path], Moved], Callable[[Moved], None], set[str]]]] = {
    "adopt": (finished, goes_on_with(3, PreparedTask), {"CreateTopics", "InitProducerId", "Produce", "EndTxn"}),
    "adopt a batch": (
        begun("2-0", "2-1"),
        goes_on_with(2, SkippedTask),
        {"InitProducerId", "Produce", "EndTxn"},
    ),
    "adopt no batch": (begun(), goes_on_with(2, PreparedTask), {"InitProducerId", "Produce", "EndTxn"}),
    "fill": (begun("2-1"), goes_on_with(2, SkippedTask), {"InitProducerId", "Produce", "EndTxn"}),
    "release": (here, given_back, {"InitProducerId", "Produce", "EndTxn"}),
    "release and stay": (here, stays_here, {"InitProducerId", "Produce", "EndTxn"}),
}


def changing() -> list[str]:
    """Kafka's names of the requests that may change something."""
    names = ("".join(word.capitalize() for word in api.name.split("_")) for api in SERVED.values())
    return [name for name in names if name not in READS and not name.startswith("Describe")]


def run(moved: Moved, folder: Path) -> CommandRun:
    name, *words = moved.words
    return CommandRun(["spark", name, str(moved.query.folder), *words, "--yes", "-b", moved.query.servers], folder)


def counted(broker: Broker, moved: Moved, folder: Path) -> dict[str, int]:
    """The number of times that an undisturbed command sends each of the requests that change something."""
    with ExitStack() as stack:
        faults = {api: stack.enter_context(broker.faults.delay_reply(api, 0, times=None)) for api in changing()}
        result = run(moved, folder).wait(PATIENCE_S)
        assert result.status == 0, result
        return {api: fault.hits for api, fault in faults.items() if fault.hits}


def killed(moved: Moved, folder: Path, fault: Fault) -> None:
    """Run the command, and kill it when the fault has struck."""
    with fault:
        command = run(moved, folder)
        try:
            fault.wait(timeout_s=PATIENCE_S)
            assert command.is_running()
        finally:
            command.send(signal.SIGKILL)
        assert command.wait().status == 128 + signal.SIGKILL
        assert fault.hits == 1


@pytest.mark.parametrize("scene", SCENES)
def test_killed_at_each_request_a_move_is_repeated_to_the_same_end(
    broker: Broker, request: pytest.FixtureRequest, tmp_path: Path, scene: str
) -> None:
    """In turns before and after a request; with the other kind of brokers the other way round."""
    make, check, expected = SCENES[scene]
    turns = cycle(("before", "after") if request.node.callspec.params["broker"] else ("after", "before"))
    sent = counted(broker, make(broker, tmp_path / "whole"), tmp_path / "command")
    assert set(sent) == expected
    for api, times in sent.items():
        for number in range(times):
            when = next(turns)
            folder = tmp_path / f"{api}-{number}-{when}"
            moved = make(broker, folder)
            forget()  # clients of this process must not send what the fault waits for
            if when == "before":
                fault = broker.faults.swallow(api, after=number)
            else:
                fault = broker.faults.delay_reply(api, PATIENCE_S, after=number)
            killed(moved, folder / "command", fault)
            check(moved)
