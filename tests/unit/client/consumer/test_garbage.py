"""The collector waits while records are made, and only then."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from fencepost.client.consumer.deserializing import held_off


@pytest.fixture(autouse=True)
def afterwards_as_before() -> Iterator[None]:
    was_enabled = gc.isenabled()
    yield
    if was_enabled:
        gc.enable()


def test_nothing_is_collected_meanwhile() -> None:
    seen: list[str] = []
    gc.enable()
    gc.callbacks.append(lambda phase, info: seen.append(phase))
    try:
        with held_off():
            objects = [[number] for number in range(50_000)]
            assert not seen
        objects += [[number] for number in range(50_000)]
        assert seen
    finally:
        del gc.callbacks[-1]


def test_it_goes_on_after_a_failure() -> None:
    gc.enable()
    with pytest.raises(ZeroDivisionError), held_off():
        raise ZeroDivisionError
    assert gc.isenabled()


def test_whoever_had_switched_it_off_finds_it_so() -> None:
    gc.disable()
    with held_off():
        pass
    assert not gc.isenabled()
