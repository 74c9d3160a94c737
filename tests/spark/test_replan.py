"""`fencepost spark repair --replan` with a real broker and the real steps of the sink, killed at each of them.

Spark is played here; test_two_clusters.py has the same with Spark.
"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.embedded import Broker
from fencepost.cli.main import main
from fencepost.spark.errors import CheckpointLostError, SupersededError
from fencepost.spark.sink import checkpoint
from fencepost.spark.sink.plan_steps import PreparedTask
from fencepost.spark.sink.steps import StepRunner
from fencepost.spark.sink.writer import StreamWriter
from tests.spark.moved_query import Query, forget
from tests.unit.spark import adoption_files as files


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"transaction.two.phase.commit.enable": True, "log.retention.ms": -1}) as broker:
        yield broker


class Planned(Query):
    """A query that this sink has written up to batch 3, and whose batch 4 is planned.

    `ends_at`: the end of the plan in partition 0.
    """

    def __init__(self, broker: Broker, folder: Path, *, ends_at: int = 99) -> None:
        super().__init__(broker, folder)
        assert self.adopt("--yes") == 0
        assert isinstance(self.batch(3), PreparedTask)
        self.plan_file = self.folder / "offsets" / "4"
        self.replans(ends_at)

    def replans(self, ends_at: int) -> None:
        """Spark plans batch 4."""
        found = files.entry(files.line(ends_at, 2))
        self.plan_file.write_bytes(found)
        self.plan_file.with_name(".4.crc").write_bytes(files.crc_of(found))

    def repair(self, *words: str, sink: str | None = None) -> int:
        """Run the command; return its status."""
        forget()
        with pytest.raises(SystemExit) as ended:
            main(["spark", "repair", sink or self.id, "--checkpoint", str(self.folder), *words, "-b", self.servers])
        return int(ended.value.code or 0)

    def goes_on(self) -> None:
        """Check that batch 4 is planned again and written once."""
        self.replans(5)
        assert isinstance(self.batch(4), PreparedTask)
        assert self.output() == self.expected(4)


def test_a_plan_that_was_not_written_is_taken_back_once_a_person_has_seen_it(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Planned(broker, tmp_path)
    planned = query.plan_file.read_text()
    capsys.readouterr()
    for answer, words in (("", []), ("n\n", []), ("", ["--dry-run"])):
        monkeypatch.setattr("sys.stdin", io.StringIO(answer))
        assert query.repair("--replan", *words) == (0 if words else 1)
        out = capsys.readouterr().out
        assert "  batch: 4 is planned and not finished" in out
        assert f"  from: {files.line(4, 2)}\n  to: {files.line(99, 2)}\n" in out
        assert query.plan_file.read_text() == planned
    assert query.repair("--replan", "--yes", "--json") == 0
    reported = json.loads(capsys.readouterr().out)
    assert (reported["query"], reported["batch"]) == (query.id, 4)
    assert (reported["from"], reported["to"]) == ([{"orders": {"0": 4, "1": 2}}], [{"orders": {"0": 99, "1": 2}}])
    assert not query.plan_file.exists()
    assert query.plan_file.with_name(".4.replaced").read_text() == planned
    assert query.repair("--replan") == 0  # nothing is to be asked
    assert "nothing to take back" in capsys.readouterr().err
    query.goes_on()


def test_other_ids_of_topics_are_named(broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = Planned(broker, tmp_path)
    for number, topic_id in ((3, "one"), (4, "other")):
        text = json.dumps({"orders": {"0": 9}, f"orders@{topic_id}": {}})
        (query.folder / "offsets" / str(number)).write_bytes(files.entry(text))
        (query.folder / "offsets" / f".{number}.crc").unlink(missing_ok=True)
    assert query.repair("--replan", "--dry-run") == 0
    assert "topic orders: its id in the plan is another" in capsys.readouterr().out


def test_a_plan_that_is_written_or_may_be_is_left(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = Planned(broker, tmp_path)
    planned = query.plan_file.read_bytes()

    def refused(words: str, **more: Any) -> None:
        assert query.repair("--replan", "--yes", **more) == 1
        assert words in capsys.readouterr().err
        assert query.plan_file.read_bytes() == planned

    refused("there is no sink 'nosuch'", sink="nosuch")
    other = Planned(broker, tmp_path / "other")
    refused(f"sink '{other.id}' has no record of query {query.id}", sink=other.id)
    with Broker() as elsewhere:
        servers, query.servers = query.servers, elsewhere.bootstrap_servers
        refused(f"there is no sink '{query.id}'")
        query.servers = servers
    writer = query.plan(4)
    message = query.message(writer, 4)
    refused("open transactions that are not decided (1)")
    StreamWriter(writer._options, writer._columns).commit([message], 4)
    refused("batch 4 is in the output")
    assert query.output() == query.expected(4)
    query.finished(4)
    assert query.repair("--replan") == 0
    assert "every planned batch is finished" in capsys.readouterr().err


def test_a_damaged_or_far_checkpoint_is_refused(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = Planned(broker, tmp_path)
    query.plan_file.write_bytes(query.plan_file.read_bytes() + b" ")
    assert query.repair("--replan", "--yes") == 1
    assert "offsets/4 does not fit its checksum file" in capsys.readouterr().err
    query.folder = Path("hdfs://host/cp")
    assert query.repair("--replan", "--yes") == 1
    assert "Copy `metadata`, `offsets` and `commits`" in capsys.readouterr().err


def test_a_query_that_runs_when_its_plan_is_taken_back_writes_nothing_of_it(broker: Broker, tmp_path: Path) -> None:
    """Spark keeps no lock on a checkpoint. The plan's run has opened the sink, or opens it later."""
    query = Planned(broker, tmp_path)
    forget()
    opened = query.plan(4)
    assert query.repair("--replan", "--yes") == 0
    with pytest.raises(SupersededError):
        query.message(opened, 4)
    late = query.folder / "offsets"
    shutil.copy(late / ".4.replaced", query.plan_file)
    forget()
    again = query.plan(4)
    message = query.message(again, 4)
    query.plan_file.unlink()  # as the command does before the run opens the sink
    with pytest.raises(CheckpointLostError, match="batch 4"):
        StreamWriter(again._options, again._columns).commit([message], 4)
    again.abort([message], 4)
    assert query.output() == query.expected(3)
    query.goes_on()


class KilledError(BaseException):
    """The process dies here."""


FILE_STEPS = ("unlink", "rename", "sync")
STEPS = 8  # that the command asks of the brokers, besides its reads of the decision topic


@pytest.mark.parametrize("step", [*FILE_STEPS, *range(STEPS + 1)])
def test_killed_at_any_step_it_can_be_run_again(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str | int
) -> None:
    query = Planned(broker, tmp_path)
    planned = query.plan_file.read_bytes()
    done: list[str] = []

    def killed(*_: object, **__: object) -> None:
        raise KilledError

    with monkeypatch.context() as dying:
        if isinstance(step, int):
            perform = StepRunner.perform

            async def counted(self: StepRunner, asked: Any) -> Any:
                if len(done) == step:
                    raise KilledError
                done.append(type(asked).__name__)
                return await perform(self, asked)

            dying.setattr(StepRunner, "perform", counted)
        elif step == "sync":
            dying.setattr(checkpoint, "_sync", killed)
        else:
            dying.setattr(Path, step, killed)
        try:
            is_killed = query.repair("--replan", "--yes") != 0
        except KilledError:
            is_killed = True
    assert is_killed == (step != STEPS)
    replaced = query.plan_file.with_name(".4.replaced")
    assert [path.read_bytes() for path in (query.plan_file, replaced) if path.exists()] == [planned]
    assert query.plan_file.exists() == (is_killed and step != "sync")
    assert query.repair("--replan", "--yes") == 0
    assert not query.plan_file.exists() and replaced.read_bytes() == planned
    query.goes_on()
