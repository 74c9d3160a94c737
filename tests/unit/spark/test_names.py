"""Transactional ids: exact round trip, and nothing else parses."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.errors import ConfigurationError
from fencepost.spark.sink import names

UNIQUE = bytes(range(16))
SINKS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)


@given(SINKS, st.binary(min_size=16, max_size=16))
def test_ids_parse_back_to_what_they_were_made_of(sink: str, unique: bytes) -> None:
    assert names.parse(names.sink_id(sink)) == names.SinkId(sink)
    assert names.parse(names.task_id(sink, unique)) == names.TaskId(sink, unique)
    assert names.task_id(sink, unique).isascii()


@given(SINKS, SINKS)
def test_two_sinks_never_share_an_id(first: str, second: str) -> None:
    ids = {names.sink_id(first), names.task_id(first, UNIQUE)} & {names.sink_id(second), names.task_id(second, UNIQUE)}
    assert bool(ids) == (first == second)


def test_the_form_is_fixed() -> None:
    assert names.sink_id("orders/eu 1%") == "fencepost-sink/orders%2Feu%201%25"
    assert names.task_id("ä.b_c-D", UNIQUE) == "fencepost-sink/%C3%A4.b_c-D/000102030405060708090a0b0c0d0e0f"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "orders",
        "fencepost-sink",
        "fencepost-sink/",
        "fencepost-sink//" + "0" * 32,
        "fencepost-sink/orders/",
        "fencepost-sink/orders/eu",
        "fencepost-sink/orders/" + "0" * 31,
        "fencepost-sink/orders/" + "0" * 33,
        "fencepost-sink/orders/" + "A" * 32,
        "fencepost-sink/orders/eu/" + "0" * 32,
        "fencepost-sink/orders%2feu",
        "fencepost-sink/%41",
        "fencepost-sink/%FF",
        "fencepost-sink/a%2",
        "fencepost-sink/a b",
        "fencepost-sink/a\n",
        "xfencepost-sink/a",
        "fencepost-sink/" + "a" * 1001,
    ],
)
def test_what_is_not_ours_does_not_parse(text: str) -> None:
    assert names.parse(text) is None


def test_a_sink_that_is_a_prefix_of_another_owns_nothing_of_it() -> None:
    parsed = names.parse(names.task_id("orders/eu", UNIQUE))
    assert isinstance(parsed, names.TaskId) and parsed.sink != "orders"
    assert not re.fullmatch(names.listing_pattern("orders"), names.task_id("orders/eu", UNIQUE))
    assert re.fullmatch(names.listing_pattern("orders/eu"), names.task_id("orders/eu", UNIQUE))
    assert not re.fullmatch(names.listing_pattern("a.b"), names.task_id("axb", UNIQUE))


@pytest.mark.parametrize("sink", ["", "x" * 1001, "\ud800"])
def test_names_that_cannot_be_a_sink_are_refused(sink: str) -> None:
    with pytest.raises(ConfigurationError):
        names.sink_id(sink)


def test_a_task_id_needs_sixteen_bytes() -> None:
    with pytest.raises(ConfigurationError):
        names.task_id("a", b"short")


@pytest.mark.parametrize(
    ("expected", "texts"),
    [
        ("/data/cp", ("/data/cp", "/data/cp/", "/data//cp", "file:/data/cp", "file:///data/cp", "file:///data/cp//")),
        ("s3a://bucket/cp", ("s3a://bucket/cp", "s3a://bucket/cp/", "s3a://bucket//cp", "s3a://bucket/a/.././cp")),
        ("hdfs:/cp", ("hdfs:/cp", "hdfs:///cp", "hdfs:///cp/", "hdfs:///other/../cp")),
        ("file://host/cp", ("file://host/cp/",)),
        ("/", ("/", "file:/", "file:///")),
        ("cp", ("cp", "cp/")),
    ],
)
def test_one_location_is_one_name(expected: str, texts: tuple[str, ...]) -> None:
    assert {names.of_location(text) for text in texts} == {expected}
