"""Write the rows of a begun batch that the output lacks.

One transaction writes all of them, with a transactional id that contains the query's id. A repeated attempt first
initializes the producer with that id, which aborts the transaction of a killed attempt, and then reads the output. Each
missing row is therefore written once. An open transaction hides the end of the output from read_committed readers, so
an adoption aborts it at its start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from fencepost.client.blocking import Producer
from fencepost.errors import UnsupportedVersionError
from fencepost.spark.adoption.batch_rows import BatchRows
from fencepost.spark.adoption.judgement import OutputTail, Rows, compare, missing
from fencepost.spark.adoption.refusals import AdoptionRefusedError, UndecidedBatchError
from fencepost.spark.adoption.verdict import BatchVerdict
from fencepost.spark.sink.runner import ClusterClient

__all__ = ["end_leftover", "fill", "is_left_open"]

ADOPTION: Final = "fencepost-adopt/"  # before the query's id
TIMEOUT_MS: Final = "900000"  # Kafka's default maximum


def is_left_open(link: ClusterClient, query_id: str) -> bool:
    """Return True if a killed attempt has left its transaction open. False if brokers cannot describe transactions."""
    try:
        (found,) = link.io.run(link.admin.describe_transactions([f"{ADOPTION}{query_id}"]))
    except UnsupportedVersionError:
        return False
    return found.error_code == 0 and found.state == "Ongoing"


def end_leftover(settings: Mapping[str, str], query_id: str) -> None:
    """Abort the open transaction of a killed attempt. Raises KafkaError."""
    with Producer.from_config({**settings, **_own(query_id)}) as producer:
        producer.init_transactions()


def _own(query_id: str) -> dict[str, str]:
    return {
        "transactional.id": f"{ADOPTION}{query_id}",
        "transaction.timeout.ms": TIMEOUT_MS,
        "acks": "all",
        "enable.idempotence": "true",
    }


def fill(settings: Mapping[str, str], batch: BatchRows, read: Callable[[], OutputTail], *, others_write: bool) -> int:
    """Write the missing rows of a begun batch.

    Args:
        settings: The producer's settings, by Kafka's dotted names.
        batch: The batch, with its rows.
        read: A function that reads the end of the output topics.
        others_write: As for `compare`.

    Returns:
        The number of rows that were written.

    Raises:
        AdoptionRefusedError: The file has no rows.
        UndecidedBatchError: The output has changed, and no longer proves which rows are missing.
        KafkaError: A request failed.
    """
    if batch.rows is None:
        raise AdoptionRefusedError("the file has no rows: describe the batch again, with keep_rows=True")
    with Producer.from_config({**settings, **_own(batch.query_id)}) as producer:
        producer.init_transactions()
        tail = read()  # only after the line above, which fences earlier attempts
        verdict, reason = compare(Rows.of([batch.hashes]), tail, others_write=others_write)
        if verdict is BatchVerdict.WHOLE:
            return 0
        if verdict is not BatchVerdict.PARTLY:
            raise UndecidedBatchError(f"batch {batch.batch_id} was begun and not finished: {reason}")
        rows = batch.rows.filter(missing(batch.hashes, tail.after))
        with producer.transaction():
            producer.send_arrow(None, rows)
    return int(rows.num_rows)
