"""The position to which a partition goes back if the records handed out are not committed. No I/O."""

from __future__ import annotations

from typing import Final

NOTHING: Final = -1
UNKNOWN: Final = -2


class RewindPoint:
    """The place behind which nothing is known to be committed, and the group's commit as last heard.

    They differ where reading began elsewhere than the commit says: by auto_offset_reset, or by a seek. Going back then
    means going to that place, unless a position was committed since.
    """

    __slots__ = ("attempted", "committed", "elsewhere", "epoch", "handed_out", "offset")

    def __init__(self) -> None:
        self.offset = NOTHING  # reading has not begun
        self.epoch = -1
        self.handed_out = False  # records behind it were given to the application
        self.elsewhere = False  # reading began at another place than the commit
        self.committed = UNKNOWN
        self.attempted = NOTHING  # committed now, or not: nobody has told

    def found(self, offset: int, epoch: int) -> None:
        """This is committed, and reading goes on from here."""
        self.offset, self.epoch, self.committed = offset, epoch, offset
        self.elsewhere, self.handed_out, self.attempted = False, False, NOTHING

    def began(self, offset: int, epoch: int) -> None:
        """Reading begins here whatever is committed (auto_offset_reset)."""
        self.offset, self.epoch, self.elsewhere, self.handed_out = offset, epoch, True, False

    def sought(self, offset: int, epoch: int) -> None:
        """The application goes there. What it was handed out before and has not committed is not given up by that."""
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
