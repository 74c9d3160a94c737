"""Writing the rows of a begun batch that the output lacks.

They are written in one transaction, whose id is the query's. A repeated attempt takes the id first, which ends whatever
the attempt before has left open, and only then looks at the output: so each missing row is written once. What was left
open hides the end of the output from committed readers, so it is ended where an adoption begins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from fencepost.client.blocking import Producer
from fencepost.errors import UnsupportedVersionError
from fencepost.spark.adoption.batch_rows import BatchRows
from fencepost.spark.adoption.judgement import Rows, Tail, compare, missing
from fencepost.spark.adoption.refusals import AdoptionRefusedError, UndecidedBatchError
from fencepost.spark.adoption.verdict import BatchVerdict
from fencepost.spark.sink.runner import ClusterClient

__all__ = ["end_leftover", "fill", "is_left_open"]

ADOPTION: Final = "fencepost-adopt/"  # before the query's id
TIMEOUT_MS: Final = "900000"  # Kafka's default maximum


def is_left_open(link: ClusterClient, query_id: str) -> bool:
    """Return whether an attempt that was killed has left its transaction open. False where brokers do not tell."""
    try:
        (found,) = link.io.run(link.admin.describe_transactions([f"{ADOPTION}{query_id}"]))
    except UnsupportedVersionError:
        return False
    return found.error_code == 0 and found.state == "Ongoing"


def end_leftover(settings: Mapping[str, str], query_id: str) -> None:
    """Abort that transaction. Raises KafkaError."""
    with Producer.from_config({**settings, **_own(query_id)}) as producer:
        producer.init_transactions()


def _own(query_id: str) -> dict[str, str]:
    return {
        "transactional.id": f"{ADOPTION}{query_id}",
        "transaction.timeout.ms": TIMEOUT_MS,
        "acks": "all",
        "enable.idempotence": "true",
    }


def fill(settings: Mapping[str, str], batch: BatchRows, read: Callable[[], Tail], *, others_write: bool) -> int:
    """Write what is missing. Returns the number of rows.

    Args:
        settings: The producer's settings, by Kafka's dotted names.
        batch: The batch, with its rows.
        read: Reads the end of the output topics.
        others_write: As for `compare`.

    Raises UndecidedBatchError when the output has changed so that nothing is proved any more, and KafkaError.
    """
    if batch.rows is None:
        raise AdoptionRefusedError("the file has no rows: describe the batch again, with keep_rows=True")
    with Producer.from_config({**settings, **_own(batch.query_id)}) as producer:
        producer.init_transactions()
        tail = read()  # after the line above: no earlier attempt can write any more
        verdict, why = compare(Rows.of([batch.hashes]), tail, others_write=others_write)
        if verdict is BatchVerdict.WHOLE:
            return 0
        if verdict is not BatchVerdict.PARTLY:
            raise UndecidedBatchError(f"batch {batch.batch_id} was begun and not finished: {why}")
        rows = batch.rows.filter(missing(batch.hashes, tail.after))
        with producer.transaction():
            producer.send_arrow(None, rows)
    return int(rows.num_rows)
