"""Bindings survive every kind of end, and a damaged file is never taken for a shorter list."""

from __future__ import annotations

import pytest

from fencepost.broker.disk.changes import carry_out
from fencepost.broker.disk.two_copies import UnusableDirectory
from fencepost.broker.security.acl_store import AclStore
from fencepost.broker.security.acls import Binding
from fencepost_lab.check.disk import MemoryDisk

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
        carry_out(store.add([FIRST, SECOND, FIRST]))
        assert store.acls.bindings == (FIRST, SECOND)
        disk.crash(seed)
        store = loaded(disk)
        assert store.acls.bindings == (FIRST, SECOND)
        carry_out(store.remove([FIRST]))
        disk.crash(seed)
        assert loaded(disk).acls.bindings == (SECOND,)


def test_nothing_is_written_when_nothing_changes() -> None:
    disk = MemoryDisk()
    store = loaded(disk)
    before = disk.writes
    carry_out(store.remove([FIRST]))
    assert disk.writes == before


def test_every_damaged_byte_is_noticed() -> None:
    disk = MemoryDisk()
    carry_out(loaded(disk).add([FIRST]))
    names = ("acls.fencepost", "acls.fencepost.copy")
    whole = disk.read_bytes(names[0])
    for position in range(len(whole)):
        for name in names:
            disk.flip_bit(name, position)
        with pytest.raises(UnusableDirectory, match=r"acls\.fencepost"):
            loaded(disk)
        disk.flip_bit(names[position % 2], position)
        assert loaded(disk).acls.bindings == (FIRST,)
        assert [disk.read_bytes(name) for name in names] == [whole, whole]
    assert len(whole) > 50


def test_bindings_that_are_missing_are_not_taken_for_none() -> None:
    disk = MemoryDisk()
    carry_out(loaded(disk).add([FIRST]))
    disk.remove("acls.fencepost")
    assert loaded(disk).acls.bindings == (FIRST,)
    disk.remove("acls.fencepost")
    disk.remove("acls.fencepost.copy")
    with pytest.raises(UnusableDirectory, match="with them all ACLs"):
        AclStore(disk).load(expected=True)
