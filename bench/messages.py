"""Control-plane messages, bytes to objects and back: every API's newest request and response, and some large ones.

    python -m bench.messages                      beside kio, which knows the same schemas
    python -m bench.messages --before REVISION    beside Fencepost's own codec as it was at that commit

kio's classes are those of one version with wire types; ours are the plain ones that handlers and clients use. Each arm
is measured in processes of its own, in turn.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import typing
from collections.abc import Iterator
from pathlib import Path
from statistics import geometric_mean
from typing import Any, NamedTuple
from uuid import UUID

from fencepost.protocol import codec
from fencepost.protocol.messages import metadata, offset_commit
from fencepost.protocol.messages.index import APIS
from tests.support.kio_messages import Side, our_class, spoken, taken_apart

ROOT = Path(__file__).resolve().parent.parent
ROUNDS = 3
ELEMENTS = 3  # of an array in a typical message
VALUES: dict[Any, Any] = {
    str: "orders/0123456789abcdef",
    bytes: bytes(40),
    bool: True,
    int: 5,
    float: 0.5,
    UUID: UUID("6f3d54a6-3a52-4a3e-9e51-0e6c29d3a2b1"),
}


class Row(NamedTuple):
    name: str
    key: int
    version: int
    side: Side
    body: bytes


def typical(cls: Any) -> Any:
    """A message with a value in every field and a few elements in every array."""
    values = {}
    for name, hint in typing.get_type_hints(cls).items():
        if name == "API_KEY":
            continue
        element, is_array, _ = taken_apart(hint)
        value = typical(element) if dataclasses.is_dataclass(element) else VALUES[element]
        values[name] = [value] * ELEMENTS if is_array else value
    return cls(**values)


def row(name: str, message: codec.Message, version: int, side: Side) -> Row:
    encode = codec.encode_request if side == "Request" else codec.encode_response
    return Row(name, message.API_KEY, version, side, encode(message, version))


def rows() -> Iterator[Row]:
    """Yield the messages to measure, each with its encoded bytes."""
    partitions = [
        metadata.MetadataResponsePartition(partition_index=index, leader_id=1, replica_nodes=[1], isr_nodes=[1])
        for index in range(50)
    ]
    topics = [metadata.MetadataResponseTopic(name=f"topic-{number}", partitions=partitions) for number in range(10)]
    brokers = [metadata.MetadataResponseBroker(node_id=1, host="broker", port=9092)]
    yield row("Metadata, 500 partitions", metadata.MetadataResponse(brokers=brokers, topics=topics), 9, "Response")
    offsets = [
        offset_commit.OffsetCommitRequestPartition(partition_index=index, committed_offset=5) for index in range(10)
    ]
    commits = [
        offset_commit.OffsetCommitRequestTopic(name=f"topic-{number}", partitions=offsets) for number in range(5)
    ]
    request = offset_commit.OffsetCommitRequest(group_id="group", topics=commits)
    yield row("OffsetCommit, 50 partitions", request, 9, "Request")
    for key, version, side in spoken():
        if version == codec.supported_versions(key)[1]:
            yield row(APIS[key].name, typical(our_class(key, side)), version, side)


@contextlib.contextmanager
def source_of(revision: str | None) -> Iterator[Path]:
    """The folder `src` of a commit, or the present one."""
    if revision is None:
        yield ROOT / "src"
        return
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "archive", revision, "src"], cwd=ROOT, capture_output=True, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
            packed.extractall(folder, filter="data")
        yield Path(folder) / "src"


def times(arm: str, source: Path, measured: list[Row]) -> list[tuple[float, float]]:
    """(decode, encode) of each row in microseconds, by a process of its own."""
    command = [sys.executable, "-m", "bench.codec_times", arm]
    given = json.dumps([(*it[1:4], it.body.hex()) for it in measured])
    environment = {**os.environ, "PYTHONPATH": str(source)}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, input=given, stdout=subprocess.PIPE, text=True, check=True
    )
    return [(decode, encode) for decode, encode in json.loads(done.stdout)]


def fastest(runs: list[list[tuple[float, float]]]) -> list[tuple[float, float]]:
    return [
        (min(decodes), min(encodes))
        for decodes, encodes in (zip(*cells, strict=True) for cells in zip(*runs, strict=True))
    ]


def main(revision: str | None = None) -> None:
    """Prints a table, and the smallest ratios of it."""
    arm, runs_of_theirs, runs_of_ours = "fencepost" if revision else "kio", [], []
    with source_of(revision) as source:
        messages = source / "fencepost" / "protocol" / "messages"
        measured = [it for it in rows() if (messages / f"{APIS[it.key].name}.py").exists()]  # newer APIs have no before
        for _ in range(ROUNDS):
            runs_of_theirs.append(times(arm, source, measured))
            runs_of_ours.append(times("fencepost", ROOT / "src", measured))
    other = revision or "kio"
    print(
        f"{'microseconds':44} {'bytes':>6} {'encode':>8} {other:>8} {'ratio':>6} {'decode':>8} {other:>8} {'ratio':>6}"
    )
    ratios = []
    all_theirs, all_ours = fastest(runs_of_theirs), fastest(runs_of_ours)
    for it, theirs, ours in zip(measured, all_theirs, all_ours, strict=True):
        decode, encode = (their / our for their, our in zip(theirs, ours, strict=True))
        ratios.append((encode, decode))
        print(
            f"{f'{it.name} {it.side} v{it.version}':44} {len(it.body):6} {ours[1]:8.1f} {theirs[1]:8.1f} {encode:5.1f}x"
            f" {ours[0]:8.1f} {theirs[0]:8.1f} {decode:5.1f}x"
        )
    encodes, decodes = zip(*ratios, strict=True)
    print(f"{'the smallest':69} {min(encodes):5.1f}x {min(decodes):24.1f}x")
    print(f"{'the geometric mean':69} {geometric_mean(encodes):5.1f}x {geometric_mean(decodes):24.1f}x")
    decode, encode = (
        sum(their) / sum(our)
        for their, our in zip(zip(*all_theirs, strict=True), zip(*all_ours, strict=True), strict=True)
    )
    print(f"{'the time of all together':69} {encode:5.1f}x {decode:24.1f}x")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", metavar="REVISION", help="a commit of this repository")
    main(parser.parse_args().before)
