"""A data directory that a newer release has worked on is refused by name, and nothing in it is changed."""

from __future__ import annotations

import logging
import struct

import pytest

from fencepost.broker.disk.two_copies import COPY, UnusableDirectory
from fencepost_lab.check.disk import MemoryDisk
from tests.support.broker_driver import BrokerDriver

SEALED = ("topics.fencepost", "settings.fencepost", "acls.fencepost", "credentials.fencepost")
TEXTS = {"meta.properties": (b"version=1", b"version=99"), "producer_ids.fencepost": (b"v1 ", b"v99 ")}
VERSION_AT = 4  # behind the magic


def raised(disk: MemoryDisk, path: str) -> None:
    """As a newer release would write it: the head says a higher version."""
    if (name := path.removesuffix(COPY)) in TEXTS:
        assert TEXTS[name][0] in disk.read_bytes(path)
        disk.write_atomic(path, disk.read_bytes(path).replace(*TEXTS[name]))
        return
    data = bytearray(disk.read_bytes(path))
    struct.pack_into(">H", data, VERSION_AT, 99)
    disk.write_atomic(path, bytes(data))


@pytest.mark.parametrize("name", [*SEALED, *TEXTS])
def test_a_newer_file_is_refused_by_name(name: str, caplog: pytest.LogCaptureFixture) -> None:
    driver = BrokerDriver()
    driver.core.close()
    for suffix in ("", COPY):
        raised(driver.disk, name + suffix)
    before = {path: driver.disk.read_bytes(path) for path in (name, name + COPY)}
    with (
        caplog.at_level(logging.ERROR),
        pytest.raises(
            UnusableDirectory, match=rf"{name}.* newer release of Fencepost \(version 99, and 1 is the newest"
        ),
    ):
        BrokerDriver(disk=driver.disk)
    assert caplog.messages == []
    assert {path: driver.disk.read_bytes(path) for path in before} == before


@pytest.mark.parametrize("suffix", ["", COPY])
def test_a_number_that_one_of_the_two_says_may_be_damage(suffix: str) -> None:
    driver = BrokerDriver()
    driver.core.close()
    before = driver.disk.read_bytes("topics.fencepost")
    raised(driver.disk, "topics.fencepost" + suffix)
    BrokerDriver(disk=driver.disk)
    assert [driver.disk.read_bytes("topics.fencepost" + each) for each in ("", COPY)] == [before, before]


def test_a_damaged_file_is_not_taken_for_a_newer_release(caplog: pytest.LogCaptureFixture) -> None:
    driver = BrokerDriver()
    driver.core.close()
    before = driver.disk.read_bytes("topics.fencepost")
    for suffix in ("", COPY):
        raised(driver.disk, "topics.fencepost" + suffix)
        driver.disk.flip_bit("topics.fencepost" + suffix, 20)
    with caplog.at_level(logging.ERROR):
        BrokerDriver(disk=driver.disk)
    assert any("the topics are taken from their directories" in message for message in caplog.messages)
    assert not any("newer" in message for message in caplog.messages)
    assert driver.disk.read_bytes("topics.fencepost")[: VERSION_AT + 2] == before[: VERSION_AT + 2]
