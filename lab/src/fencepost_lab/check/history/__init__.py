"""Histories: the requests of Kafka clients and their answers. `fencepost_lab.check.checks` judges them."""

from __future__ import annotations

from fencepost_lab.check.history.model import Anomaly, Outcome
from fencepost_lab.check.history.summary import RecordRead, RecordWrite, SentRecord, Summary, TransactionSummary

__all__ = ["Anomaly", "Outcome", "RecordRead", "RecordWrite", "SentRecord", "Summary", "TransactionSummary"]
