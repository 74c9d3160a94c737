"""Which generation of clients a request comes from: the table of the generations, read off the versions they send."""

from __future__ import annotations

import pytest

from fencepost.broker.coordinator.txn import generations
from fencepost.broker.coordinator.txn.generations import Generation

A, B, L, C, D = Generation.A, Generation.B, Generation.L, Generation.C, Generation.D


@pytest.mark.parametrize(
    ("init", "add", "generation"),
    [
        *((init, add, A) for init in (0, 1, 2) for add in (-1, 0, 1, 2, 3)),
        (3, 0, B),
        (3, 1, B),
        (4, 0, L),
        (4, 1, L),
        (-1, 0, A),  # no InitProducerId is known: its version came with a later release of the log
        (-1, 1, A),
        *((init, add, C) for init in (-1, 3, 4, 5) for add in (-1, 2, 3)),
    ],
)
def test_old_requests_are_told_apart_by_what_opened_the_transaction(
    init: int, add: int, generation: Generation
) -> None:
    assert generations.of_produce(11, init, add) is generation
    assert generations.of_offsets(4, init, add) is generation
    if add >= 0:
        assert generations.of_add(add, init) is generation
        assert generations.of_end(add, init) is generation


def test_new_requests_say_it_themselves() -> None:
    assert generations.of_produce(12, 4, 0) is generations.of_offsets(5, 4, 0) is generations.of_end(5, 4) is D
