"""What a task registers in the decision topic (level `resume-unlisted`): bytes that stay as they are."""

from __future__ import annotations

import pytest

from fencepost.spark.errors import CorruptDecisionError, SinkContradictionError
from fencepost.spark.sink import names
from fencepost.spark.sink.decision import decode_key, decode_registration, encode_key, encode_registration

UNIQUE = bytes(range(0x10, 0x20))
VALUE = UNIQUE + b"\x00\x0d\xbb\xa0"  # 900000
KEY = b"FPT\x01\x00\x04eu/a\x0f"  # the slot is the last byte's rest by 16


def test_it_is_the_id_s_unique_bytes_under_a_key_of_its_sink_and_slot() -> None:
    task = names.task_id("eu/a", UNIQUE)
    assert encode_registration(task, 900_000) == (KEY, VALUE)
    assert decode_registration(KEY, VALUE) == ("eu/a", task, 900_000)
    with pytest.raises(SinkContradictionError):
        encode_registration(names.sink_id("eu/a"), 1)


def test_it_and_a_decision_pass_each_other_over() -> None:
    assert decode_key(KEY) is None
    assert decode_registration(encode_key("eu/a", "q"), VALUE) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (KEY[:-1], VALUE),
        (KEY + b"\0", VALUE),
        (KEY, VALUE[1:]),
        (KEY, None),
        (KEY.replace(b"eu", b"\xff\xff"), VALUE),
    ],
)
def test_what_is_damaged_is_told(key: bytes, value: bytes | None) -> None:
    with pytest.raises(CorruptDecisionError):
        decode_registration(key, value)
