"""Where the answers may differ: each rule is a difference that docs/differences-from-kafka.md names."""

from __future__ import annotations

from typing import Any

from tests.support.differential.comparing import PRODUCE, Difference
from tests.support.differential.side import CLOSED, SILENT


def kafka_stumbles(difference: Difference) -> bool:
    """Kafka closes the connection, says nothing, or answers -1 (UNKNOWN_SERVER_ERROR), where this broker refuses by name."""
    if difference.kafka in (CLOSED, SILENT):
        return not isinstance(difference.ours, str)
    return all(kafka == -1 and isinstance(ours, int) and ours > 0 for _, ours, kafka in difference.places())


def an_old_end_after_a_new_one(difference: Difference) -> bool:
    """EndTxn v0-4 with an epoch that v5 handed out is 48."""
    asked = difference.question
    return asked.api_key == 26 and asked.version < 5 and _code(difference.ours) == 48


def a_gap_in_a_transaction(difference: Difference) -> bool:
    """45 inside a transaction comes without a log start offset."""
    return difference.question.api_key == PRODUCE and all(
        where.endswith("log_start_offset") and ours == -1 for where, ours, _ in difference.places()
    )


def _code(answer: Any) -> Any:
    return answer.get("error_code") if isinstance(answer, dict) else None


KNOWN = (kafka_stumbles, a_gap_in_a_transaction, an_old_end_after_a_new_one)


def unknown(differences: list[Difference]) -> list[Difference]:
    """Those that no rule stands for."""
    return [difference for difference in differences if not any(rule(difference) for rule in KNOWN)]
