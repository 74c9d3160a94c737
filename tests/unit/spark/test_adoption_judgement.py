"""A begun batch beside the end of the output: decided where it is proved, and nowhere else."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from fencepost.spark.adoption.judgement import OutputTail, Rows, compare, missing, without_rows
from fencepost.spark.adoption.verdict import BatchVerdict

NOTHING, WHOLE, PARTLY, UNDECIDED = (
    BatchVerdict.NOTHING,
    BatchVerdict.WHOLE,
    BatchVerdict.PARTLY,
    BatchVerdict.UNDECIDED,
)


def rows(*numbers: int) -> Rows:
    return Rows.of([np.array(numbers, np.uint64)])


def tail(
    after: Rows, around: Rows | None = None, *, deleted: tuple[str, ...] = (), keeps_all: bool = True
) -> OutputTail:
    return OutputTail(after, rows() if around is None else around, deleted, keeps_all)


BATCH = rows(1, 2, 2, 3)
CASES = [
    (tail(rows()), False, NOTHING, "none of its 4 rows"),
    (tail(rows(), rows(7, 8)), False, NOTHING, "none of its 4 rows"),
    (tail(rows(3, 2, 1, 2)), False, WHOLE, "all of its 4 rows"),
    (tail(rows(3, 2, 1, 2), rows(1, 9)), False, WHOLE, "all of its 4 rows"),
    (tail(rows(1, 1, 2, 2, 3, 3)), False, WHOLE, "2 records more are equal"),
    (tail(rows(1, 2)), False, PARTLY, "2 of its 4 rows are in the output, and 2 are not"),
    (tail(rows(1, 2, 3)), False, PARTLY, "3 of its 4 rows"),
    (tail(rows(1, 1, 1, 1)), False, PARTLY, "1 of its 4 rows"),
    (tail(rows(1), rows(1, 8)), False, PARTLY, "1 of its 4 rows"),
    (tail(rows(1), deleted=("out-0",)), False, UNDECIDED, "deleted from out-0"),
    (tail(rows(1), keeps_all=False), False, UNDECIDED, "compacted"),
    (tail(rows(7)), False, UNDECIDED, "1 record was written since"),
    (tail(rows(1, 2, 2, 3, 7)), False, UNDECIDED, "--other-writers"),
    (tail(rows(7)), True, NOTHING, "none of its 4 rows"),
    (tail(rows(1, 2, 2, 3, 7)), True, WHOLE, "all of its 4 rows"),
    (tail(rows(1, 7)), True, PARTLY, "1 of its 4 rows"),
    (tail(rows(), rows(1)), False, UNDECIDED, "--clocks-within"),
    (tail(rows(2), rows(1, 2, 3)), False, UNDECIDED, "unless they include 3 records from shortly before"),
    (tail(rows(), deleted=("out-0",)), False, UNDECIDED, "deleted from out-0"),
    (tail(rows(1, 2, 2, 3), deleted=("out-0",)), False, WHOLE, "all of its 4 rows"),
    (tail(rows(), keeps_all=False), False, NOTHING, "none of its 4 rows"),
    (tail(rows(7), keeps_all=False), True, UNDECIDED, "compacted"),
    (tail(rows(1, 2, 2, 3), keeps_all=False), False, WHOLE, "all of its 4 rows"),
]


@pytest.mark.parametrize(("end", "others_write", "verdict", "words"), CASES)
def test_cases(end: OutputTail, others_write: bool, verdict: BatchVerdict, words: str) -> None:
    found, why = compare(BATCH, end, others_write=others_write)
    assert found is verdict and words in why


def test_a_batch_without_rows_has_nothing_to_be_doubled() -> None:
    assert compare(rows(), tail(rows(7)), others_write=False)[0] is NOTHING


def test_without_the_rows_only_silence_is_proof() -> None:
    assert without_rows(tail(rows()))[0] is NOTHING
    for end in (tail(rows(1)), tail(rows(), rows(1)), tail(rows(), deleted=("out-1",))):
        assert without_rows(end)[0] is UNDECIDED
    assert "--clocks-within" in without_rows(tail(rows(), rows(1)))[1]  # a shorter time leaves silence
    assert "--clocks-within" not in without_rows(tail(rows(1), rows(1)))[1]


def test_random_histories_are_never_judged_wrongly() -> None:
    """A sink that writes each row of a batch none, one or several times, beside earlier batches and other programs."""
    chance = random.Random(7)
    seen: Counter[BatchVerdict] = Counter()
    for _ in range(4000):
        batch = Counter(chance.choices(range(6), k=chance.randrange(6)))
        times = chance.choice([(0,), (1,), (0, 1), (1, 2)])
        written = Counter({row: count * chance.choice(times) for row, count in batch.items()})
        skewed = Counter({row: chance.randint(0, count) for row, count in written.items()})
        is_exact = chance.random() < 0.7  # clocks
        around = Counter(chance.choices(range(9), k=chance.randrange(3)))
        others = Counter(chance.choices(range(6, 12), k=chance.choice([0, 0, 2])))
        after = written + others
        if not is_exact:
            after, around = after - skewed, around + skewed
        end = tail(rows(*after.elements()), rows(*around.elements()))
        verdict, _ = compare(rows(*batch.elements()), end, others_write=bool(others))
        seen[verdict] += 1
        lacking = batch - written
        if verdict is WHOLE:
            assert not lacking
        if verdict is NOTHING:
            assert not +written
        if verdict is PARTLY:
            came = list(batch.elements())
            chance.shuffle(came)
            found = missing(np.array(came, np.uint64), end.after)
            assert Counter(row for row, lacks in zip(came, found, strict=True) if lacks) == lacking
    assert min(seen[verdict] for verdict in BatchVerdict) > 100
