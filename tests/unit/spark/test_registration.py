"""What a task registers in the decision topic (level `resume-unlisted`): bytes that stay as they are."""

from __future__ import annotations

import pytest

from fencepost.spark.errors import CorruptDecisionError, SinkContradictionError
from fencepost.spark.sink import names
from fencepost.spark.sink.decision import decode_key, decode_registration, encode_key, encode_registration

UNIQUE = bytes(range(0x10, 0x20))
KEY = b"FPT\x01\x00\x04eu/a\x0f"  # the slot is the last byte's rest by 16


def test_it_is_the_id_s_unique_bytes_under_a_key_of_its_sink_and_slot() -> None:
    task = names.task_id("eu/a", UNIQUE)
    assert encode_registration(task) == (KEY, UNIQUE)
    assert decode_registration(KEY, UNIQUE) == ("eu/a", task)
    with pytest.raises(SinkContradictionError):
        encode_registration(names.sink_id("eu/a"))


def test_it_and_a_decision_pass_each_other_over() -> None:
    assert decode_key(KEY) is None
    assert decode_registration(encode_key("eu/a", "q"), UNIQUE) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (KEY[:-1], UNIQUE),
        (KEY + b"\0", UNIQUE),
        (KEY, UNIQUE[1:]),
        (KEY, None),
        (KEY.replace(b"eu", b"\xff\xff"), UNIQUE),
    ],
)
def test_what_is_damaged_is_told(key: bytes, value: bytes | None) -> None:
    with pytest.raises(CorruptDecisionError):
        decode_registration(key, value)
