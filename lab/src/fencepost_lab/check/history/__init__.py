"""Histories: the requests of Kafka clients and their answers. `fencepost_lab.check.checks` judges them."""

from __future__ import annotations

from fencepost_lab.check.history.model import Anomaly, Outcome
from fencepost_lab.check.history.summary import RecordRead, RecordWrite, Sent, TransactionSummary
from fencepost_lab.check.history.summary import Summary as History

__all__ = ["Anomaly", "History", "Outcome", "RecordRead", "RecordWrite", "Sent", "TransactionSummary"]
