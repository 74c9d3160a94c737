"""An error names the value that it refuses, however long it is and whatever its class does."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

import fencepost
from fencepost import PreparedTransaction
from fencepost.errors import ConfigurationError

NOWHERE = "127.0.0.1:1"
MOST = 400  # characters of the whole message


class WithoutText:
    def __repr__(self) -> str:
        raise RuntimeError("this object has no text")


@pytest.mark.parametrize(
    ("call", "shown"),
    [
        (lambda: fencepost.Producer(NOWHERE, acks="some" + "x" * 5_000), "'somexxx"),
        (lambda: fencepost.Producer(NOWHERE, acks="x" * 5_000 + "end"), "xxxend'"),
        (lambda: fencepost.Producer(NOWHERE, linger_ms=10**5_000), "<int of 16610 bits>"),
        (lambda: fencepost.Producer(NOWHERE, linger_ms=cast("float", WithoutText())), "<WithoutText instance at 0x"),
        (lambda: fencepost.Producer(NOWHERE, linger_ms=cast("float", [WithoutText()] * 1_000)), ", ..."),
        (lambda: PreparedTransaction.parse("x" * 5_000), "xxx'"),
    ],
    ids=["start of a text", "end of a text", "long number", "no text", "long list", "no setting"],
)
def test_the_value_is_shown_in_brief(call: Callable[[], object], shown: str) -> None:
    with pytest.raises((ConfigurationError, TypeError)) as refused:
        call()
    assert shown in str(refused.value)
    assert len(str(refused.value)) < MOST
