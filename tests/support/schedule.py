"""Which file of tests a worker of pytest-xdist is given next.

A worker starts a Spark and its Python processes for itself when a test first asks for them, which takes it a quarter of
a minute of processor time; all workers share one Apache Kafka. So one worker of four begins with the files whose tests
share a Spark, and the others take some when nothing else is left.
"""

from __future__ import annotations

from collections.abc import Iterable

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

SHARE_SPARK = (
    "tests/spark/test_checkpoint_loss.py",
    "tests/spark/test_checkpoint_places.py",
    "tests/spark/test_checkpoint_taken_away.py",
    "tests/spark/test_cluster.py",
    "tests/spark/test_continuous.py",
    "tests/spark/test_entry_points.py",
    "tests/spark/test_exactly_once.py",
    "tests/spark/test_examples.py",
    "tests/spark/test_interrupted.py",
    "tests/spark/test_killed.py",
    "tests/spark/test_pipeline.py",
    "tests/spark/test_query_meter.py",
    "tests/spark/test_schemas.py",
    "tests/spark/test_secrets.py",
    "tests/spark/test_sql_entry_points.py",
    "tests/spark/test_two_clusters.py",
    "tests/spark/test_workers_killed.py",
    "tests/test_snippets.py",
)


class FarEndsScheduling(LoadFileScheduling):  # type: ignore[misc]  # it has no types
    """Files in the order of the collection, but first those that a worker need start nothing for."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        number = int(node.gateway.id.removeprefix("gw"))
        self.workqueue.move_to_end(next_file(self.workqueue, number), last=False)
        super()._assign_work_unit(node)


def next_file(waiting: Iterable[str], worker: int) -> str:
    """The first that is for the worker, else the first. Raises ValueError when nothing waits."""
    has_spark = worker % 4 == 0
    return min(waiting, key=lambda file: (file in SHARE_SPARK) != has_spark)
