"""Answers to a request: the single item of a response, and errors of requests that may have taken effect."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TypeVar

from fencepost.errors import KafkaError, ProtocolError, error_for

__all__ = ["only", "refusal", "with_unknown_outcome"]

T = TypeVar("T")
K = TypeVar("K", bound=KafkaError)


def only(listed: Sequence[T]) -> T:
    """Return the single item of a response. Raises ProtocolError if the response has none."""
    if not listed:
        raise ProtocolError("the response does not contain the requested item")
    return listed[0]


def with_unknown_outcome(error: K, unknown: bool) -> K:
    """Return the error, with `outcome_unknown` if `unknown` is set.

    It is a copy then, because other calls may raise the same object: all calls that waited for one connection do.
    """
    if error.outcome_unknown or not unknown:
        return error
    own = copy.copy(error)
    own.outcome_unknown = True
    own.__cause__ = error.__cause__
    return own


def refusal(code: int, operation: str, detail: str | None, unanswered: Sequence[KafkaError]) -> KafkaError:
    """Return the error with a note that an earlier attempt without a response may have succeeded."""
    if not unanswered:
        return error_for(code, operation, detail)
    doubt = "an earlier attempt of this call was not answered and may have done it"
    error = error_for(code, operation, f"{detail}; {doubt}" if detail else doubt)
    error.outcome_unknown = True
    return error
