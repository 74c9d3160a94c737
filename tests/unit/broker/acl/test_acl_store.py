"""Bindings survive every kind of end, and a damaged file is never taken for a shorter list."""

from __future__ import annotations

import pytest

from fencepost.broker.acl.model import Binding
from fencepost.broker.acl.store import AclsCorrupt, AclStore
from fencepost.check.disk import MemoryDisk

FIRST = Binding(2, 3, "t", "User:alice", "*", 3, 3)
SECOND = Binding(5, 4, "ü", "User:bob", "10.0.0.1", 15, 2)


def loaded(disk: MemoryDisk) -> AclStore:
    store = AclStore(disk)
    store.load()
    return store


def test_bindings_are_there_again_after_a_power_loss() -> None:
    for seed in range(5):
        disk = MemoryDisk()
        store = loaded(disk)
        store.add([FIRST, SECOND, FIRST])
        assert store.acls.bindings == (FIRST, SECOND)
        disk.crash(seed)
        store = loaded(disk)
        assert store.acls.bindings == (FIRST, SECOND)
        store.remove([FIRST])
        disk.crash(seed)
        assert loaded(disk).acls.bindings == (SECOND,)


def test_nothing_is_written_when_nothing_changes() -> None:
    disk = MemoryDisk()
    loaded(disk).remove([FIRST])
    assert not disk.exists("acls.fencepost")


def test_every_damaged_byte_is_noticed() -> None:
    disk = MemoryDisk()
    loaded(disk).add([FIRST])
    size = len(disk.read_bytes("acls.fencepost"))
    for position in range(size):
        disk.flip_bit("acls.fencepost", position)
        with pytest.raises(AclsCorrupt, match=r"acls\.fencepost"):
            loaded(disk)
        disk.flip_bit("acls.fencepost", position)
    assert loaded(disk).acls.bindings == (FIRST,)
    assert size > 50
