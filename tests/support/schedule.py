"""Which file of tests a worker of pytest-xdist is given next.

Each worker starts an Apache Kafka, a Spark and its Python processes for itself when a test first asks for them, which
takes it a quarter of a minute of processor time. So a worker has a home: the far ends that it starts. Workers of
different homes are also better company: a test on Kafka mostly waits, one on Spark mostly computes.
"""

from __future__ import annotations

from collections.abc import Iterable

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

KAFKA, SPARK = "Apache Kafka", "Spark"
HOMES = (frozenset({SPARK, KAFKA}), frozenset({KAFKA}), frozenset({SPARK}), frozenset({KAFKA}))
"""Of the first worker, the second, and so on, then from the beginning."""

BOTH = (
    "tests/spark/test_cluster.py",
    "tests/spark/test_exactly_once.py",
    "tests/spark/test_killed.py",
    "tests/spark/test_runner.py",
    "tests/spark/test_spark_command.py",
    "tests/spark/test_stateful.py",
)


class FarEndsScheduling(LoadFileScheduling):  # type: ignore[misc]  # it has no types
    """Files in the order of the collection, but first those that a worker need start nothing for."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        number = int(node.gateway.id.removeprefix("gw"))
        self.workqueue.move_to_end(next_file(self.workqueue, number), last=False)
        super()._assign_work_unit(node)


def next_file(waiting: Iterable[str], worker: int) -> str:
    """The first of the worker's home; else of no far end; else of a part of its home; else any.

    Raises ValueError when nothing waits.
    """
    home = HOMES[worker % len(HOMES)]

    def rank(file: str) -> int:
        ends = far_ends(file)
        if ends == home:
            return 0
        return 1 if not ends else 2 if ends < home else 3

    return min(waiting, key=rank)


def far_ends(file: str) -> frozenset[str]:
    """What the tests of a file share with others of their worker."""
    if file in BOTH:
        return frozenset({SPARK, KAFKA})
    if file.startswith("tests/spark/"):
        return frozenset({SPARK})
    return frozenset({KAFKA}) if file.startswith(("tests/conformance/", "tests/compat/")) else frozenset()
