"""The judgement of `python -m tests.support.librdkafka_suite`."""

from __future__ import annotations

from tests.support.librdkafka_suite import Ran, differences

PASSED, FAILED = Ran(0, 1.0, ""), Ran(134, 2.0, "0001 failed at line 7")


def test_a_test_that_fails_on_our_broker_only_is_a_difference() -> None:
    ours = {"a": PASSED, "b": FAILED, "c": FAILED, "d": PASSED}
    kafka = {"a": PASSED, "b": FAILED, "c": PASSED, "d": FAILED}
    assert differences(ours, kafka) == ["c fails: 0001 failed at line 7 (2 s)"]
