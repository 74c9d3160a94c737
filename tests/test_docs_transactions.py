"""docs/transactions.md: its loop survives what it says, and every exception of `fencepost.errors` has a true row."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

import fencepost
from fencepost import errors
from fencepost.client.producer.transaction_answers import is_fatal
from fencepost.errors import KafkaError
from fencepost.protocol.codes import ErrorCode
from fencepost.testing import read_all
from tests.support.readme import ROOT

PAGE = (ROOT / "docs" / "transactions.md").read_text()
BRANCHES: tuple[type[KafkaError], ...] = (
    errors.RetriableError,
    errors.AbortableError,
    errors.ApplicationRecoverableError,
    errors.FatalError,
)
# Where what a failed transaction does to its producer is not the question: only consumers meet the first two, and
# the third comes from an abort that ended the transaction. The last two say that the client is gone.
GOES_ON = {errors.CorruptRecordError, errors.DecompressionLimitError, errors.TransactionCommittedError}
IS_DONE = {errors.ClosedError, errors.ForkedError}


@dataclass(frozen=True)
class Row:
    branch: str
    name: str
    goes_on: str


def rows(page: str) -> list[Row]:
    """The tables whose first column is a class, with the heading that each stands below."""
    section = page.partition("## Every exception")[2].partition("\n## ")[0]
    found, branch = [], ""
    for line in section.splitlines():
        if heading := re.fullmatch(r"### (?:`(\w+)`.*|Others)", line):
            branch = heading[1] or ""
        elif row := re.fullmatch(r"\| `(\w+)` \|[^|]+\|[^|]+\| (.+) \|", line):
            found.append(Row(branch, row[1], row[2]))
    return found


def problems(page: str) -> list[str]:
    classes = {
        name: value for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, KafkaError)
    }
    reported = rows(page)
    names = [row.name for row in reported]
    found = [f"{name} has {names.count(name)} rows" for name in classes if names.count(name) != 1]
    found += [f"{row.name} is no exception" for row in reported if row.name not in classes]
    for row in reported:
        if row.name in classes:
            found += wrong(row, classes[row.name])
    return found


def wrong(row: Row, kind: type[KafkaError]) -> list[str]:
    branch = next((each.__name__ for each in BRANCHES if issubclass(kind, each)), "")
    done = kind not in GOES_ON and (kind in IS_DONE or is_fatal(kind.__new__(kind)))
    goes_on = "is done" if done else "goes on"
    found = [] if row.branch == branch else [f"{row.name} is not below {branch or 'Others'}"]
    return found + ([] if row.goes_on == goes_on else [f"{row.name}: the client {goes_on}, not {row.goes_on!r}"])


def test_every_exception_has_its_row() -> None:
    assert len(rows(PAGE)) > 40
    assert problems(PAGE) == []


@pytest.mark.parametrize(
    ("of", "to", "expected"),
    [
        ("| `WakeupError` ", "| `WakeUpError` ", ["WakeupError has 0 rows", "WakeUpError is no exception"]),
        ("### Others", "### `FatalError`", ["KafkaError is not below Others"]),
        ("| `ClosedError` | the client was closed | make a new one | is done |", "", ["ClosedError has 0 rows"]),
        (" call again | goes on |", " call again | is done |", ["RetriableError: the client goes on, not 'is done'"]),
    ],
)
def test_a_row_that_is_missing_or_wrong_is_found(of: str, to: str, expected: list[str]) -> None:
    assert of in PAGE
    found = problems(PAGE.replace(of, to, 1))
    assert set(expected) <= set(found), found


@pytest.mark.parametrize(
    ("api", "code", "expected"),
    [
        ("EndTxn", ErrorCode.INVALID_PRODUCER_ID_MAPPING, "again with new clients"),
        ("EndTxn", ErrorCode.TRANSACTION_ABORTABLE, "not committed"),
        ("EndTxn", None, ""),  # the answer is lost
        ("Produce", ErrorCode.INVALID_PRODUCER_EPOCH, "not committed"),
        ("TxnOffsetCommit", ErrorCode.ILLEGAL_GENERATION, "not committed"),
        ("TxnOffsetCommit", None, ""),
        ("InitProducerId", None, ""),
    ],
)
def test_the_loop_survives(api: str, code: ErrorCode | None, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each once, in the middle of the work; whatever it says, every order has its one invoice."""
    program = next(part.partition("\n```")[0] for part in PAGE.split("```python\n") if "def bill(" in part)
    loop: dict[str, object] = {"__name__": "page"}
    exec(program, loop)  # noqa: S102 (the page's own text)
    bill = loop["bill"]
    assert callable(bill)
    with fencepost.Broker() as broker:
        with fencepost.Producer(broker.bootstrap_servers) as source:
            for number in range(20):
                source.send("orders", b"%d" % number)
        faults = broker.faults
        topic = "invoices" if api == "Produce" else None
        fault = faults.drop_reply(api, topic=topic) if code is None else faults.fail(api, code, topic=topic)
        bill(broker.bootstrap_servers, 20)
        assert fault.hits == 1
        assert sorted(int(record.value or b"-1") for record in read_all(broker, "invoices")) == list(range(20))
    assert expected in capsys.readouterr().out
