"""Retention while the disk refuses the file that says where the log begins."""

from __future__ import annotations

import dataclasses
import errno

import pytest

from fencepost.broker.disk.changes import carry_out
from fencepost.broker.log.removing import has_removable_segment, moving, retaining
from fencepost_lab.check.disk import MemoryDisk
from tests.support.small_logs import NOW, SMALL, filled, headers, opened


def test_a_full_disk_gets_room_by_retention() -> None:
    """The small file that says where the log begins cannot be written: the oldest segment goes first."""
    disk = MemoryDisk(durable=False)
    log = filled(dataclasses.replace(SMALL, retention_bytes=800), disk=disk)
    before = [segment.base_offset for segment in log.segments]
    disk.fail_next_write()
    assert carry_out(retaining(log, NOW)) > 0
    assert log.log_start_offset == log.segments[0].base_offset > before[0]
    disk.kill()
    again = opened(log.config, disk)
    assert (again.log_start_offset, again.log_end_offset) == (log.log_start_offset, 40)
    assert again.report.cuts == []


def test_records_that_retention_removed_are_not_damaged_although_the_disk_stays_full() -> None:
    log = filled(dataclasses.replace(SMALL, retention_bytes=800))
    disk = log.files
    assert isinstance(disk, MemoryDisk)
    disk.fail_next_write(within="log-start-offset")
    disk.fail_next_write(within="log-start-offset")
    with pytest.raises(OSError, match="no space"):
        carry_out(retaining(log, NOW))
    assert log.log_start_offset == log.segments[0].base_offset > 0
    assert log.read(0, 300).error_code == 1  # OFFSET_OUT_OF_RANGE
    assert carry_out(retaining(log, NOW)) == 0
    disk.kill()
    again = opened(log.config, disk)
    assert (again.log_start_offset, again.report.damaged) == (log.log_start_offset, [])


def test_retention_removes_nothing_if_the_log_start_cannot_be_written() -> None:
    """Only a full disk makes it remove records first: with another error their absence would look like damage."""
    disk = MemoryDisk(durable=False)
    log = filled(dataclasses.replace(SMALL, retention_bytes=800), disk=disk)
    disk.fail_next_write(OSError(errno.EIO, "Input/output error"), within="log-start-offset")
    with pytest.raises(OSError, match="Input/output"):
        carry_out(retaining(log, NOW))
    assert log.log_start_offset == log.segments[0].base_offset == 0
    assert headers(log.read(0, 300).records)[0].base_offset == 0
    assert carry_out(retaining(log, NOW)) > 0


def test_a_segment_that_could_not_be_removed_is_removed_by_the_next_retention() -> None:
    disk = MemoryDisk(durable=False)
    log = filled(dataclasses.replace(SMALL, retention_bytes=800), disk=disk)
    first = f"{log.segments[0].base_offset:020}.log"
    disk.fail_next_write(OSError(errno.EIO, "Input/output error"), within=first)
    assert carry_out(retaining(log, NOW)) > 0
    assert log.log_start_offset > 0
    assert first in disk.listdir(log.directory)
    carry_out(retaining(log, NOW))
    assert first not in disk.listdir(log.directory)
    assert log.segments[0].base_offset == log.log_start_offset


def test_deleting_records_succeeds_although_a_segment_cannot_be_removed() -> None:
    disk = MemoryDisk(durable=False)
    log = filled(SMALL, disk=disk)
    first = f"{log.segments[0].base_offset:020}.log"
    disk.fail_next_write(OSError(errno.EIO, "Input/output error"), within=first)
    assert carry_out(moving(log, log.high_watermark)) == log.high_watermark == log.log_start_offset
    assert has_removable_segment(log)
    carry_out(retaining(log, NOW))
    assert first not in disk.listdir(log.directory)
