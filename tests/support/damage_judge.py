"""The judge of the damage campaign: compares everything that is read with what was readable before the damage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fencepost.broker.topics.internal import is_internal
from fencepost.protocol.codes import ErrorCode
from fencepost.protocol.records.batch import iter_batches
from fencepost.protocol.records.walk import records_of
from tests.support.batches import batch
from tests.support.broker_driver import BrokerDriver, produce
from tests.support.damage_cases import Case, Hit
from tests.support.damage_world import COMPACTED, View

__all__ = ["Judge", "Record", "written_in"]

Record = tuple[bytes | None, bytes | None]


def written_in(files: Mapping[str, bytes]) -> dict[tuple[str, int], Record]:
    """Return every record in the files of logs, also of those that are about to be replaced."""
    found: dict[tuple[str, int], Record] = {}
    for path, data in files.items():
        if path.endswith(".log"):
            topic = path.rpartition("/")[0].rpartition("-")[0]
            for header, view in iter_batches(data):
                for record in records_of(header, view):
                    found[topic, record.offset] = (None, None) if header.is_control else (record.key, record.value)
    return found


class Judge:
    """Compares a view with the one before the damage.

    `before` and `retained` are views of the undamaged directory, before and after retention. `accepted` is set once
    repair has accepted the loss, so that no reader may meet an error any more. `is_retained` is set once retention was
    applied: then either log start may be found, and the records below it are gone.
    """

    def __init__(
        self,
        before: View,
        retained: View,
        written: Mapping[tuple[str, int], Record],
        case: Case,
        hit: Hit,
        topics: Sequence[str],
    ) -> None:
        self._before = before
        self._retained = retained
        self._written = written
        self._case = case
        self._hit = hit
        self._topics = topics
        self.accepted = False
        self.is_retained = False

    def judge(self, step: str, view: View) -> list[str]:
        """Return what breaks the rule."""
        wrong = [*self._records(view), *self._committed(view), *self._ends(view), *self._times(view)]
        return [f"{step}: {text}" for text in [*wrong, *self._coordinators(view)]]

    def _is_hit(self, topic: str, offset: int) -> bool:
        return topic == self._case.topic and offset in self._hit.offsets

    def _start(self, topic: str, view: View) -> int:
        """The log start: the one before, or the one after retention where it was applied and has counted."""
        return view.ends[topic][0] if topic in view.ends and self.is_retained else self._before.ends[topic][0]

    def _records(self, view: View) -> Iterator[str]:
        for (topic, offset), was in self._before.records.items():
            if topic not in self._topics or offset < self._start(topic, view):
                continue
            now = view.records.get((topic, offset))
            if now == was:
                continue
            if now is None and topic in COMPACTED and self._is_superseded(view, offset, was):
                continue
            if self._is_hit(topic, offset) and ((self.accepted and now is None) or isinstance(now, int)):
                continue
            yield f"{topic} offset {offset}: {was!r} was readable, now {now!r}"
        for position, now in view.records.items():
            topic, offset = position
            is_known = position in self._before.records or isinstance(now, int) or self._written.get(position) == now
            is_marker = now == (None, None) and offset >= self._before.ends[topic][2]  # of what is ended now
            if not is_known and not (is_marker and self._hit.offsets):
                yield f"{position}: {now!r} was not there before"
            if isinstance(now, int) and (self.accepted or now != ErrorCode.CORRUPT_MESSAGE):
                yield f"{position}: error {now}"

    @staticmethod
    def _is_superseded(view: View, offset: int, was: Record | int) -> bool:
        later = (now for (topic, at), now in view.records.items() if topic in COMPACTED and at > offset)
        return any(not isinstance(now, int) and not isinstance(was, int) and now[0] == was[0] for now in later)

    def _committed(self, view: View) -> Iterator[str]:
        for position, value in view.committed.items():
            was = (
                self._written.get(position)
                if position[0] in COMPACTED
                else (None, self._before.committed.get(position))
            )
            if was is None or was[1] != value:
                yield f"{position}: {value!r} was not committed, and is read as committed"
        for position in self._before.committed:
            topic, offset = position
            if topic not in self._topics or position in view.committed or self._is_hit(topic, offset):
                continue
            if topic in COMPACTED or (topic == self._case.topic and self._hit.marker):
                continue
            if offset >= self._start(topic, view):
                yield f"{position}: it was committed, and is not read as committed"

    def _ends(self, view: View) -> Iterator[str]:
        for topic, (start, stable, end) in self._before.ends.items():
            if topic in self._topics and topic in view.ends:
                found = view.ends[topic]
                starts = {start, self._retained.ends[topic][0]} if self.is_retained else {start}
                if self.accepted and all(self._is_hit(topic, offset) for offset in range(start, found[0])):
                    starts.add(found[0])  # nothing is left of the log's first records, and the loss was accepted
                is_same = found[0] in starts and found[1:] == (stable, end)
                if not is_same and (found[0] not in starts or found[2] < end or not self._hit.offsets):
                    yield f"{topic}: start, stable and end offset {(start, stable, end)}, now {found}"
            elif topic in self._topics:
                yield f"{topic} is gone"

    def _times(self, view: View) -> Iterator[str]:
        for topic, timestamp in self._before.times:
            if topic in self._topics and topic in view.ends and topic not in COMPACTED and topic != "open":
                is_moved = view.ends[topic][0] != self._before.ends[topic][0]
                was = (self._retained if is_moved else self._before).times[topic, timestamp]
                now = view.times.get((topic, timestamp))
                may_differ = topic == self._case.topic and self._hit.offsets
                if now != was and not (may_differ and (now is not None and (now[0] or self._is_hit(topic, was[1])))):
                    yield f"{topic} at time {timestamp}: {was}, now {now}"

    def _coordinators(self, view: View) -> Iterator[str]:
        internal = self._case.topic if is_internal(self._case.topic) and self._hit.offsets else ""
        answers: list[tuple[str, Mapping[str, tuple[int, object]], Mapping[str, tuple[int, object]]]] = [
            ("__consumer_offsets", self._before.offsets, view.offsets),
            ("__transaction_state", self._before.states, view.states),
        ]
        for topic, before, after in answers:
            for name, answer in before.items():
                found = after.get(name, (0, None))
                if found != answer and not (internal == topic and (self.accepted or found[0])):
                    yield f"{topic} on {name}: {answer}, now {found}"

    def produce(self, driver: BrokerDriver) -> Iterator[str]:
        """Send a record to each topic and yield what is wrong: it must get an offset that nobody had."""
        for topic in self._topics:
            answer = driver.ask(produce(topic, batch(b"new")), 9).partitions[0]
            if topic == "keys":
                if answer.error_code != ErrorCode.INVALID_RECORD:
                    yield f"produce to {topic}: {answer}"
            elif answer.error_code or answer.base_offset < self._before.ends[topic][2]:
                yield f"produce to {topic}: {answer}"
