"""The outcome of a command that changes something and fails: made, not made, or unknown."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from fencepost.cli.output import refuse
from fencepost.cli.printable import printable
from fencepost.client.diagnosis.holding import partition_name, some_of
from fencepost.client.types import TopicPartition
from fencepost.errors import ItemsFailedError, KafkaError
from fencepost.small_files import os_reason

__all__ = ["Changes", "changes_reported"]

MOST_NAMED: Final = 5


class Changes:
    """The changes that a command makes in turn, each within `change`."""

    def __init__(self) -> None:
        self._made = 0
        self._is_begun = False
        self._doubt = ""
        self._rest: Sequence[str] = ()

    @contextmanager
    def change(self, words: str, rest: Sequence[str] = (), *, has_steps: bool = False) -> Iterator[None]:
        """Make a change in the block.

        Args:
            words: The change as a sentence, such as "topic orders was created".
            rest: The objects that are to be changed after it.
            has_steps: The change is made by several requests, so that a refusal does not mean that nothing was done.
        """
        self._is_begun, self._doubt, self._rest = True, words, rest
        try:
            yield
        except (KafkaError, OSError) as error:
            if not has_steps and not (isinstance(error, KafkaError) and error.may_have_taken_effect):
                self._doubt = ""
            raise
        self._is_begun, self._doubt = False, ""
        self._made += 1

    def outcome(self, error: KafkaError | OSError | None = None) -> str:
        """Return in words what a command leaves that ends with this error; None: it is interrupted."""
        if isinstance(error, ItemsFailedError) and error.results and self._is_begun:
            return _parts(error)
        if self._doubt:
            rest = f"; not tried: {some_of(self._rest, MOST_NAMED)}" if self._rest else ""
            return f"it is unknown if {self._doubt}{rest}"
        return "nothing else was changed" if self._made else "nothing was changed"


@contextmanager
def changes_reported() -> Iterator[Changes]:
    """Say at an error or Ctrl-C in the block what was changed, and exit with status 1 after an error."""
    changes = Changes()
    try:
        yield changes
    except KeyboardInterrupt:
        sys.stderr.write(f"fencepost: interrupted: {printable(changes.outcome())}\n")
        raise
    except (KafkaError, OSError) as error:
        reason = str(error) if isinstance(error, KafkaError) else os_reason(error)
        refuse(f"{reason}\n{changes.outcome(error)}")


def _parts(error: ItemsFailedError) -> str:
    """Return the items of a request by their outcome."""
    unknown = [item for item, reason in error.errors.items() if reason.may_have_taken_effect]
    failed = [item for item in error.errors if item not in unknown]
    parts = {"done": [*error.results], "not done": failed, "unknown": unknown}
    return "; ".join(f"{word}: {some_of([*map(_name, items)], MOST_NAMED)}" for word, items in parts.items() if items)


def _name(item: Any) -> str:
    return partition_name(item) if isinstance(item, TopicPartition) else str(item)
