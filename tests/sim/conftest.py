"""Simulated worlds, without their logs."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Disable the logs of clients and brokers, which in hundreds of runs take longer than the runs."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
