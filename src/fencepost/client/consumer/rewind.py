"""The position to which a partition goes back if the records handed out are not committed. No I/O."""

from __future__ import annotations

from typing import Final

NOTHING: Final = -1
UNKNOWN: Final = -2


class RewindPoint:
    """The offset from which on nothing is known to be committed, and the group's last known committed offset.

    They differ if reading began at another offset than the committed one: after auto_offset_reset, or after a seek. The
    consumer then goes back to that offset, unless a position was committed since.
    """

    __slots__ = ("attempted", "committed", "elsewhere", "epoch", "handed_out", "offset")

    def __init__(self) -> None:
        self.offset = NOTHING  # reading has not begun
        self.epoch = -1
        self.handed_out = False  # records after it were returned to the application
        self.elsewhere = False  # reading began at another offset than the committed one
        self.committed = UNKNOWN
        self.attempted = NOTHING  # this offset may be committed: its commit has no response

    def found(self, offset: int, epoch: int) -> None:
        """Set the committed position, from which reading continues."""
        self.offset, self.epoch, self.committed = offset, epoch, offset
        self.elsewhere, self.handed_out, self.attempted = False, False, NOTHING

    def began(self, offset: int, epoch: int) -> None:
        """Set a position from auto_offset_reset, independent of the committed one."""
        self.offset, self.epoch, self.elsewhere, self.handed_out = offset, epoch, True, False

    def sought(self, offset: int, epoch: int) -> None:
        """Set the position of a seek. Uncommitted records returned before the seek can still be read again."""
        if self.handed_out and self.offset <= offset:
            self.elsewhere = True
        else:
            self.began(offset, epoch)

    def back(self, committed: tuple[int, int] | None) -> tuple[int, int] | None:
        """Return the position to go back to, given the committed (offset, epoch). None: auto_offset_reset decides."""
        here = None if self.offset == NOTHING else (self.offset, self.epoch)
        if committed is None:
            self.committed = NOTHING
            return here
        unchanged = self.committed in (UNKNOWN, committed[0]) and committed[0] != self.attempted
        if here is not None and self.elsewhere and unchanged:
            self.committed = committed[0]
            return here
        self.found(*committed)
        return committed
