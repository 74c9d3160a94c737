"""Simulated losses of power, and listings of directories.

A loss of power never brings a file back into a directory that has another name by then. A listing names all that is
in the directory.
"""

from __future__ import annotations

from random import Random

from fencepost_lab.check.disk import MemoryDisk

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
    return {name for directory in ("old", "other") for name in disk.tree(directory)}


def test_what_comes_back_is_where_its_directory_is() -> None:
    found = [crashed(seed) for seed in SEEDS]
    assert not any(name.startswith("old") for names in found for name in names)
    assert {len(names) for names in found} > {1}, "some removals are undone, some are not"


def test_a_directory_lists_what_is_in_it_whatever_was_done() -> None:
    directories = ("a", "b", "b/c")
    for seed in range(20):
        chance, disk, known = Random(seed), MemoryDisk(), {"a", "b", "b/c"}
        disk.makedirs("a")
        disk.makedirs("b/c")
        for step in range(60):
            path, target = (f"{chance.choice(directories)}/{chance.randrange(4)}" for _ in range(2))
            match chance.randrange(8):
                case 0 | 1:
                    disk.open(path).append(b"x")
                case 2 | 3:
                    disk.write_atomic(path, b"x")
                case 4:
                    disk.remove(path)
                case 5 if disk.exists(path) and path != target:
                    disk.rename(path, target)
                case 6 if step % 4 == 0:
                    disk.crash(step)
                case 7 if step % 8 == 0:
                    disk.put_tree("a", {"a/put": b"x"})
            there = known | disk.tree("").keys()
            for directory in ("", *directories):
                below = {
                    name.removeprefix(f"{directory}/" if directory else "")
                    for name in there
                    if name.startswith(directory)
                }
                named = {name.partition("/")[0] for name in below if name != directory}
                assert disk.listdir(directory) == sorted(named), (seed, step, directory)
        disk.remove_tree("b")
        assert disk.listdir("") == ["a"]
