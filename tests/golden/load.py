"""Reads the captured files; no Kafka knowledge beyond their layout, described in README.md."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tests.support.recording_proxy import Exchange

HERE = Path(__file__).resolve().parent
SEGMENTS = HERE / "segments"
SETTINGS = HERE / "settings.tsv"
SETTINGS_PROGRAM = HERE / "Settings.java"
CLIENT_SETTINGS = SETTINGS.with_name("client_settings.tsv")
CLIENT_SETTINGS_PROGRAM = SETTINGS.with_name("ClientSettings.java")
CLIENT_METHODS = SETTINGS.with_name("client_methods.txt")
CLIENT_METHODS_PROGRAM = SETTINGS.with_name("ClientMethods.java")
"""Java compiles a program of one file by itself."""


def exchanges() -> list[Exchange]:
    """Every captured request with its response."""
    found = []
    for path in sorted((HERE / "wire").glob("*.jsonl")):
        for line in path.read_text().splitlines():
            read = json.loads(line)
            request, response = base64.b64decode(read["request"]), base64.b64decode(read["response"])
            found.append(Exchange(read["label"], read["api_key"], read["api_version"], request, response))
    return found


class KafkasSetting(NamedTuple):
    """`whose`: "broker", "topic" or "group". `kind`: a ConfigDef.Type. `default`: "none" and "required" are none."""

    whose: str
    name: str
    kind: str
    default: str


def settings_of_kafka(whose: str) -> list[KafkasSetting]:
    """Those of the brokers, the topics or the groups."""
    found = [KafkasSetting(*line.split("\t")) for line in SETTINGS.read_text().splitlines()]
    return [setting for setting in found if setting.whose == whose]


@dataclass(frozen=True, slots=True)
class DumpedRecord:
    """One "| offset: ..." line: its plain fields, and what stands behind key: and payload: (absent is None)."""

    fields: dict[str, str]
    key: str | None
    payload: str | None


@dataclass(frozen=True, slots=True)
class DumpedBatch:
    """One "baseOffset: ..." line with its records."""

    fields: dict[str, str]
    records: tuple[DumpedRecord, ...]


def log_bytes(partition: str) -> bytes:
    return (SEGMENTS / partition / "00000000000000000000.log").read_bytes()


def dump(partition: str) -> list[DumpedBatch]:
    """DumpLogSegments' reading of a partition's log."""
    batches: list[tuple[dict[str, str], list[DumpedRecord]]] = []
    for line in (SEGMENTS / f"{partition}.dump.txt").read_text().splitlines():
        if line.startswith("baseOffset: "):
            batches.append((_fields(line), []))
        elif line.startswith("| offset: "):
            batches[-1][1].append(_record(line[2:]))
    return [DumpedBatch(fields, tuple(records)) for fields, records in batches]


def _record(line: str) -> DumpedRecord:
    head, _, rest = line.partition(" headerKeys: ")
    headers, _, rest = rest.partition("]")
    key = re.search(r"^ key: (.*?)(?= payload: |$)", rest)
    payload = re.search(r" payload: (.*)$", rest)
    marker = re.search(r" endTxnMarker: (\w+) coordinatorEpoch: (-?\d+)", rest)
    fields = {**_fields(head), "headerKeys": headers.lstrip("[")}
    if marker:
        fields |= {"endTxnMarker": marker.group(1), "coordinatorEpoch": marker.group(2)}
    return DumpedRecord(fields, key and key.group(1), payload and payload.group(1))


def _fields(text: str) -> dict[str, str]:
    return dict(re.findall(r"(\w+): (\S+)", text))
