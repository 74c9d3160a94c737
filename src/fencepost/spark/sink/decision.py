"""The decision record: the one durable record that says which transactions of a micro-batch are to be committed.

One transaction on the sink's own id S writes it, with a key of sink and query id. A compacted topic keeps the last
decision of each query. That is enough, because Open completes a decision before a later decision replaces it.

Value (big endian)::

    magic "FPD" | version u8 | crc32c u32 of the rest | batch id i64 | sink | query id | count u32 | winners
    [| rows u64 | checksum u64 | length u32 | offsets]
    sink, query id: length u16, UTF-8     winner: 16 unique bytes of the transactional id, producer id i64, epoch i16
    offsets: zlib of JSON {"batch": ..., "before": ...}, or empty

The part in brackets is missing in the decision of an adopted batch whose rows are unknown.

The sink's name is in every winner's transactional id. A winner therefore takes 26 bytes, and 30,000 of them fit in
Kafka's default limit of 1 MiB. Key: magic "FPK" | 1 | sink | query id. The key never changes its form, because
compaction compares its bytes.

A query's *beginning* is a second kind of record, outside of any transaction. The sink writes it before it decides the
query's first batch. It distinguishes a topic that has lost a query from a query whose batches had no rows. Key: magic
"FPB" | 1 | sink | query id. Value: JSON with the number of that batch (`first`) and texts for a person. `fencepost
spark adopt` writes it for a query that comes from another sink, and `release` marks it when the query goes back. The
sink refuses batches below `first`, and all batches of a marked query. If `first` was begun by the other sink, `adopt`
adds the topics in which it did not find the batch, and the sink writes that batch to no other topic.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from fencepost.arguments import brief_repr
from fencepost.counted import counted_noun
from fencepost.protocol.crc import crc32c
from fencepost.protocol.cursor import Reader
from fencepost.protocol.errors import MalformedMessage
from fencepost.protocol.json_text import parse_json
from fencepost.protocol.transactions import LAST_EPOCH
from fencepost.spark.errors import CorruptDecisionError, SinkContradictionError
from fencepost.spark.sink import names
from fencepost.values import Value

__all__ = [
    "MAX_OFFSETS_BYTES",
    "MAX_QUERY_ID_BYTES",
    "MAX_WINNERS",
    "NO_ROWS",
    "Beginning",
    "Content",
    "Decision",
    "Pair",
    "SourceOffsets",
    "Winner",
    "decode_beginning",
    "decode_beginning_key",
    "decode_key",
    "decode_value",
    "encode_beginning",
    "encode_key",
    "encode_value",
    "shown_sources",
    "source_lines",
]

MAX_WINNERS: Final = 30_000
MAX_QUERY_ID_BYTES: Final = 1000
VERSION: Final = 1
RELEASED: Final = "released after"  # a key of Beginning.about
SEARCHED: Final = "first batch not found in"  # a key of Beginning.about
MAX_OFFSETS_BYTES: Final = 128 * 1024  # compressed; with all winners a decision stays below 1 MiB
MAX_OFFSETS_TEXT_BYTES: Final = 64 * 1024 * 1024

_VALUE_MAGIC: Final = b"FPD"
_KEY_MAGIC: Final = b"FPK\x01"
_BEGIN_MAGIC: Final = b"FPB\x01"
_HEAD: Final = struct.Struct(">3sBI")
_BATCH: Final = struct.Struct(">q")
_LENGTH: Final = struct.Struct(">H")
_COUNT: Final = struct.Struct(">I")
_CONTENT: Final = struct.Struct(">QQ")
_WINNER: Final = struct.Struct(f">{names.UNIQUE_BYTES}sqh")


@dataclass(frozen=True, slots=True, order=True)
class Pair:
    """Producer id and epoch, as EndTxn carries them."""

    producer_id: int
    epoch: int

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.epoch}"


class Winner(Value):
    """A transaction to commit, and the pair that commits it."""

    transactional_id: str
    pair: Pair


class Content(Value):
    """The number of rows, and a 64-bit checksum that does not depend on their order."""

    rows: int
    checksum: int

    def __add__(self, other: Content) -> Content:
        return Content(self.rows + other.rows, (self.checksum + other.checksum) % 2**64)

    def __str__(self) -> str:
        return f"{counted_noun(self.rows, 'row')} with checksum {self.checksum:016x}"


NO_ROWS: Final = Content(0, 0)


class SourceOffsets(Value):
    """Spark's offset log as the texts of two files: the end of the batch, and the end of the batch before."""

    batch: str
    before: str | None

    def __str__(self) -> str:
        return shown_sources(self.batch)


def source_lines(entry: str) -> list[str]:
    """Return the line of each source in an entry of Spark's offset log, after its version and metadata."""
    return entry.removesuffix("\n").split("\n")[2:]


def shown_sources(entry: str) -> str:
    """Return the lines of the sources for a message; the whole text if it has none."""
    return "; ".join(source_lines(entry)) or entry


class Decision(Value):
    """Batch `batch_id` of query `query_id` of `sink` consists of exactly these transactions.

    `content` is None for an adopted batch whose rows are unknown. `offsets` is None if the checkpoint could not be
    read, or if they are too long.
    """

    sink: str
    query_id: str
    batch_id: int
    winners: tuple[Winner, ...]
    content: Content | None = None
    offsets: SourceOffsets | None = None


class Beginning(Value):
    """The first batch that a sink remembers of a query, with texts that identify the query for a person."""

    sink: str
    query_id: str
    first_batch: int
    about: tuple[tuple[str, str], ...] = ()

    @property
    def is_released(self) -> bool:
        """True if another sink writes the query now, because `fencepost spark release` has given it back."""
        return any(name == RELEASED for name, _ in self.about)

    @property
    def searched(self) -> frozenset[str] | None:
        """The topics in which `fencepost spark adopt` did not find the begun first batch; None: it did not search."""
        found = dict(self.about).get(SEARCHED)
        return None if found is None else frozenset(found.split(", "))

    def not_found_in(self, topics: Sequence[str]) -> Beginning:
        """Return the same beginning, with the topics that do not have its first batch, which was begun."""
        return replace(self, about=(*self.about, (SEARCHED, ", ".join(topics))))

    def released_after(self, batch_id: int | None) -> Beginning:
        """Return the same beginning, marked as given back after this batch; None: no batch was finished."""
        return replace(self, about=(*self.about, (RELEASED, "nothing" if batch_id is None else f"batch {batch_id}")))

    def __str__(self) -> str:
        named = ", ".join(f"{name} {text!r}" for name, text in self.about)
        return f"query {self.query_id}" + (f" ({named})" if named else "")


def encode_key(sink: str, query_id: str) -> bytes:
    """Return the record key of the sink's query."""
    return _KEY_MAGIC + _text(sink, names.MAX_SINK_BYTES) + _text(query_id, MAX_QUERY_ID_BYTES)


def decode_key(key: bytes) -> tuple[str, str] | None:
    """Return (sink, query id), or None for a key of another kind."""
    return _owner(key, _KEY_MAGIC)


def _owner(key: bytes, magic: bytes) -> tuple[str, str] | None:
    if not key.startswith(magic):
        return None
    with _corrupt():
        reader = Reader(key, position=len(magic))
        sink, query_id = _read_text(reader), _read_text(reader)
        reader.end()
    return sink, query_id


def encode_value(decision: Decision) -> bytes:
    """Return the record value.

    Raises SinkContradictionError if the decision breaks a limit or names a transaction of another sink.
    """
    if len(decision.winners) > MAX_WINNERS:
        raise SinkContradictionError(
            f"a decision names at most {MAX_WINNERS} transactions, not {len(decision.winners)}"
        )
    if not 0 <= decision.batch_id < 2**63:
        raise SinkContradictionError(f"batch id {decision.batch_id} is negative or too large")
    body = bytearray(_BATCH.pack(decision.batch_id))
    body += _text(decision.sink, names.MAX_SINK_BYTES)
    body += _text(decision.query_id, MAX_QUERY_ID_BYTES)
    body += _COUNT.pack(len(decision.winners))
    seen: set[bytes] = set()
    for winner in decision.winners:
        name = names.parse(winner.transactional_id)
        if not isinstance(name, names.TaskId) or name.sink != decision.sink:
            raise SinkContradictionError(f"{winner.transactional_id!r} is not a task id of sink {decision.sink!r}")
        if name.unique in seen:
            raise SinkContradictionError(f"{winner.transactional_id!r} is named twice")
        seen.add(name.unique)
        _check_pair(winner.pair)
        body += _WINNER.pack(name.unique, winner.pair.producer_id, winner.pair.epoch)
    if decision.content is not None:
        body += _CONTENT.pack(decision.content.rows, decision.content.checksum)
        offsets = _packed(decision.offsets)
        body += _COUNT.pack(len(offsets)) + offsets
    return _HEAD.pack(_VALUE_MAGIC, VERSION, crc32c(bytes(body))) + bytes(body)


def _packed(offsets: SourceOffsets | None) -> bytes:
    """Return the compressed offsets; b"" if there are none or they are too long. A decision is valid without them."""
    if offsets is None:
        return b""
    text = json.dumps({"batch": offsets.batch, "before": offsets.before}).encode()
    packed = zlib.compress(text) if len(text) <= MAX_OFFSETS_TEXT_BYTES else b""
    return packed if len(packed) <= MAX_OFFSETS_BYTES else b""


def _unpacked(packed: bytes) -> SourceOffsets | None:
    if not packed:
        return None
    try:
        inflater = zlib.decompressobj()
        text = inflater.decompress(packed, MAX_OFFSETS_TEXT_BYTES)
        if not inflater.eof:
            raise CorruptDecisionError("a decision's source offsets are too long, or cut short")
        fields = parse_json(text)
        batch, before = fields["batch"], fields["before"]
    except (zlib.error, ValueError, KeyError, TypeError) as error:
        raise CorruptDecisionError("a decision's source offsets cannot be read") from error
    if not isinstance(batch, str) or not (before is None or isinstance(before, str)):
        raise CorruptDecisionError("a decision's source offsets are not texts")
    return SourceOffsets(batch, before)


def decode_value(value: bytes) -> Decision:
    """Decode a value that `encode_value` wrote. Raises CorruptDecisionError for any other."""
    if len(value) < _HEAD.size:
        raise CorruptDecisionError(f"a decision of {len(value)} bytes is too short")
    magic, version, checksum = _HEAD.unpack_from(value)
    if magic != _VALUE_MAGIC:
        raise CorruptDecisionError(f"a decision begins with {_VALUE_MAGIC!r}, not {magic!r}")
    if version != VERSION:
        raise CorruptDecisionError(
            f"a decision has version {version}, which a newer release wrote; this release reads version {VERSION}"
        )
    body = value[_HEAD.size :]
    if crc32c(body) != checksum:
        raise CorruptDecisionError("a decision's checksum does not fit its bytes")
    with _corrupt():
        return _read(body)


def _read(body: bytes) -> Decision:
    reader = Reader(body)
    (batch_id,) = reader.unpack(_BATCH)
    sink, query_id = _read_text(reader), _read_text(reader)
    (count,) = reader.unpack(_COUNT)
    if count > MAX_WINNERS:
        raise CorruptDecisionError(f"a decision names {count} transactions; the limit is {MAX_WINNERS}")
    winners = []
    for _ in range(count):
        unique, producer_id, epoch = reader.unpack(_WINNER)
        winners.append(Winner(names.task_id(sink, unique), Pair(producer_id, epoch)))
    decision = Decision(sink, query_id, batch_id, tuple(winners))
    if reader.left:
        content = Content(*reader.unpack(_CONTENT))
        (length,) = reader.unpack(_COUNT)
        decision = replace(decision, content=content, offsets=_unpacked(bytes(reader.take(length))))
    reader.end()
    return decision


def encode_beginning(beginning: Beginning) -> tuple[bytes, bytes]:
    """Return key and value of the record."""
    owner = _text(beginning.sink, names.MAX_SINK_BYTES) + _text(beginning.query_id, MAX_QUERY_ID_BYTES)
    return _BEGIN_MAGIC + owner, json.dumps({"first": beginning.first_batch, **dict(beginning.about)}).encode()


def decode_beginning_key(key: bytes) -> tuple[str, str] | None:
    """Return (sink, query id), or None for a key of another kind."""
    return _owner(key, _BEGIN_MAGIC)


def decode_beginning(sink: str, query_id: str, value: bytes) -> Beginning:
    """Decode a beginning. Raises CorruptDecisionError for a damaged record."""
    try:
        named = parse_json(value)
        first = int(named.pop("first"))
        about = tuple((str(name), str(text)) for name, text in named.items())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptDecisionError(f"the beginning of query {query_id} at sink {sink!r} cannot be read") from error
    return Beginning(sink, query_id, first, about)


def _check_pair(pair: Pair) -> None:
    if not (0 <= pair.producer_id < 2**63 and 0 <= pair.epoch <= LAST_EPOCH):
        raise SinkContradictionError(f"{pair} is not a producer id and epoch")


def _text(text: str, limit: int) -> bytes:
    raw = text.encode()
    if not 1 <= len(raw) <= limit:
        raise SinkContradictionError(f"{brief_repr(text)} has {len(raw)} bytes; allowed are 1 to {limit}")
    return _LENGTH.pack(len(raw)) + raw


def _read_text(reader: Reader) -> str:
    (length,) = reader.unpack(_LENGTH)
    try:
        return str(reader.take(length), "utf-8")
    except UnicodeDecodeError as error:
        raise CorruptDecisionError("a decision's text is not UTF-8") from error


@contextmanager
def _corrupt() -> Iterator[None]:
    """Raise CorruptDecisionError for malformed bytes."""
    try:
        yield
    except MalformedMessage as error:
        raise CorruptDecisionError(f"a decision is damaged: {error}") from error
