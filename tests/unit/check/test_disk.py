"""What a simulated power loss brings back: never a file into a directory that has another name by then."""

from __future__ import annotations

from fencepost.check.disk import MemoryDisk

SEEDS = range(50)


def crashed(seed: int) -> set[str]:
    """Names after a loss of power, of a disk on which a file was removed and one replaced before all was renamed."""
    disk = MemoryDisk()
    disk.makedirs("old")
    for name in ("old/removed", "old/replaced", "old/new"):
        disk.write_atomic(name, b"x")
    disk.remove("old/removed")
    disk.rename("old/new", "old/replaced")
    disk.rename("old", "other")
    disk.crash(seed)
    return {name for place in ("old", "other") for name in disk.tree(place)}


def test_what_comes_back_is_where_its_directory_is() -> None:
    found = [crashed(seed) for seed in SEEDS]
    assert not any(name.startswith("old") for names in found for name in names)
    assert {len(names) for names in found} > {1}, "some removals are undone, some are not"
