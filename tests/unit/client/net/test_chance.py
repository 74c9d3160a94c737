"""Random numbers of clients: other ones in each process, and none of the application's."""

from __future__ import annotations

import os
import random

from fencepost.client.group.consumer_protocol import new_member_id
from fencepost.client.net.asyncio_runtime import AsyncioRuntime


class Drawing(AsyncioRuntime):
    """A runtime without an event loop."""

    def __init__(self) -> None:
        pass


def in_a_child() -> str:
    """The member id that a forked child of this process takes."""
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writes, new_member_id(Drawing()).encode())
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as answer:
        found = answer.read()
    os.waitpid(pid, 0)
    return found


def test_forked_processes_are_members_of_their_own() -> None:
    """With the same ids they would be one member of the group, and read the same partitions."""
    ids = {in_a_child(), in_a_child(), new_member_id(Drawing())}
    assert len(ids) == 3 and all(ids)


def test_the_numbers_of_the_application_stay() -> None:
    random.seed(7)
    expected = [random.random() for _ in range(3)]
    random.seed(7)
    found = []
    for _ in range(3):
        Drawing().random()
        found.append(random.random())
    assert found == expected
