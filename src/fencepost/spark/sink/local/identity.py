"""The name of a sink: `sink.id`, or a default that only one query can have.

The default is the query's id, which Spark writes into the checkpoint's `metadata` before it plans anything. Earlier
releases took the checkpoint's location, which two queries can share: a relative path, or a volume that every container
mounts at the same place. A query whose decisions are under such a name keeps it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from fencepost.spark.sink import checkpoint, names

__all__ = ["SAY", "SinkName", "name_of"]

SAY: Final = "set option sink.id, a name that stays over restarts and that no other query has"


class SinkName(NamedTuple):
    """A sink's name, and the names that earlier releases gave to the same query's sink, the likeliest first.

    `query_id`: the query whose decisions show that a former name is its own; None where that cannot be known, and a
    former name counts that was ever claimed. `refusal`: the reason why only a former name can do; "" otherwise.
    """

    own: str
    former: tuple[str, ...] = ()
    query_id: str | None = None
    refusal: str = ""

    @property
    def all(self) -> tuple[str, ...]:
        """Every name under which the sink may have something open."""
        return (*([] if self.refusal else [self.own]), *self.former)


def name_of(given: str | None, location: str | None, query_name: str | None, *, is_copy: bool = False) -> SinkName:
    """The sink's name from its options. Reads the checkpoint's `metadata` where that is in local files.

    Args:
        given: Option sink.id.
        location: Option checkpointLocation, as the user wrote it.
        query_name: Option queryName.
        is_copy: Option query.copied: another query has the same id.

    One of the first three is given.
    """
    if given:
        return SinkName(given)
    if not location:
        return SinkName(query_name or "")
    spelled = names.of_location(location)
    former = tuple(dict.fromkeys((spelled, location)))
    folder = checkpoint.local_folder(location)
    query_id = None if folder is None else checkpoint.query_of(folder)
    if query_id is not None:
        refusal = f"query.copied needs sink.id, for the other query has the same default; {SAY}" if is_copy else ""
        return SinkName(query_id, former, query_id, refusal)
    if folder is None or folder.is_absolute():
        # On another file system, which the executors' Python cannot read: the whole location is the name.
        return SinkName(spelled, former[1:])
    refusal = f"the checkpoint {location!r} is a relative path and cannot be read here, so it names no query; {SAY}"
    return SinkName(spelled, former, None, refusal)
