"""Progress display of the demo: a table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from fencepost.counted import counted_noun

__all__ = ["Counters", "Progress"]

LINE_INTERVAL_SECONDS = 5.0


@dataclass(slots=True)
class Counters:
    """State of the run, for display."""

    rows_total: int = 0
    rows_by_batch: dict[int, int] = field(default_factory=dict)
    transactions: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("open", "prepared", "committed", "aborted"), 0)
    )
    kills: dict[str, int] = field(default_factory=dict)
    driver_starts: int = 0
    query_failures: int = 0
    waits: dict[str, list[float]] = field(default_factory=dict)
    """Seconds from each kill to the next finished micro-batch, by the killed process."""

    @property
    def waited(self) -> str:
        """The waits in words."""
        texts = (f"{name} {', '.join(f'{each:.1f} s' for each in waits)}" for name, waits in sorted(self.waits.items()))
        return f"from kill -9 to the next batch: {'; '.join(texts) or 'no process was killed'}"

    @property
    def rows(self) -> int:
        """Input rows of finished micro-batches. A replayed batch counts once."""
        return sum(self.rows_by_batch.values())

    @property
    def fraction(self) -> float:
        return self.rows / self.rows_total if self.rows_total else 0.0

    @property
    def rows_done(self) -> str:
        """Rows and batches done, in words."""
        done = f"{self.rows:>7,} of {self.rows_total:,} flights ({self.fraction:4.0%})"
        return f"{done} in {counted_noun(len(self.rows_by_batch), 'batch')}"

    def line(self, seconds: float) -> str:
        """Return all counters in one line."""
        transactions = ", ".join(f"{count} {name}" for name, count in self.transactions.items())
        kills = ", ".join(f"{count} {name}" for name, count in sorted(self.kills.items())) or "none"
        return f"{seconds:5.0f} s  {self.rows_done} | transactions: {transactions} | kill -9: {kills}"


class Progress:
    """Context manager that displays counters and messages."""

    def __init__(self, console: Console, counters: Counters) -> None:
        self._console = console
        self._counters = counters
        self._started = time.monotonic()
        self._last_line = 0.0
        self._live = Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()
        self._console.print(self._counters.line(self.seconds), soft_wrap=True, highlight=False)

    @property
    def seconds(self) -> float:
        """Seconds since the start of the demo."""
        return time.monotonic() - self._started

    def say(self, message: str) -> None:
        """Print a message with the time."""
        self._console.print(f"{self.seconds:5.0f} s  {message}", soft_wrap=True, highlight=False, markup=False)

    def refresh(self) -> None:
        """Display the current counters."""
        if self._live:
            self._live.update(self._table())
        elif self.seconds - self._last_line >= LINE_INTERVAL_SECONDS:
            self._last_line = self.seconds
            self._console.print(self._counters.line(self.seconds), soft_wrap=True, highlight=False)

    def _table(self) -> Table:
        counters = self._counters
        table = Table.grid(padding=(0, 2))
        table.add_row("flights", counters.rows_done.lstrip())
        table.add_row("transactions", ", ".join(f"{count} {name}" for name, count in counters.transactions.items()))
        table.add_row(
            "kill -9", ", ".join(f"{count} {name}" for name, count in sorted(counters.kills.items())) or "none yet"
        )
        table.add_row(
            "restarts",
            f"{max(counters.driver_starts - 1, 0)} of the driver, {counters.query_failures} of the query inside it",
        )
        table.add_row("time", f"{self.seconds:.0f} s")
        return table
