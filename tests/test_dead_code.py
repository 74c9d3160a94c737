"""Nothing in the product is there for nothing: the product, a benchmark or an example uses it, or the docs name it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from vulture import Vulture

from tests.support.tidy import ROOT

USERS = ("src", "lab/src", "tools", "bench", "examples")
NOT_READ = (
    *("*/protocol/messages/*", "*/protocol/codes.py", "*/protocol/acls.py", "*/protocol/scram.py"),
    "*/compat/confluent_kafka/admin_kinds.py",
)
"""Generated, or the wire's vocabulary: codes and names are listed whole."""

CALLED_BY_OTHERS = {
    "asyncio's protocols": ("connection_made eof_received get_buffer buffer_updated sizehint"),
    "Python, and tuples that are unpacked": "writable __getattr__",
    "typer": "get_usage finish_flink reset_offsets set_password",
    "reprlib": "maxstring maxother",
    "ssl": "num_tickets",
    "pytest": "pytest_plugins",
    "http.server": (
        "daemon_threads block_on_close request_queue_size address_family handle_error service_actions version_string "
        "do_GET do_HEAD do_POST log_message http_open https_open _create_connection"
    ),
    "MkDocs' hooks": "on_config on_files on_page_markdown on_page_content on_post_page",
    "PySpark's listeners": "onQueryStarted onQueryProgress onQueryIdle onQueryTerminated",
    "PySpark's data sources": (
        "streamReader streamWriter initialOffset latestOffset getDefaultReadLimit prepareForTriggerAvailableNow "
        "reportLatestOffset"
    ),
}
FOR_USERS = {
    "values to look at": "is_future STATIC_BROKER CLASS run_id *_offsets_behind_latest",
    "configuration given by its text": "ssl_keystore_type ssl_truststore_type",
    "counters, which are read by their fields": "*_total",
    "what a simulated run tells": "repairs",
    "names of confluent-kafka": (
        "operation_timeout id_string isr isrs is_synonym Type "
        "restype_int add_incremental_config is_simple_consumer_group partition_assignor for_timestamp "
        "orig_broker_name is_key resolver"
    ),
    "messages, whose fields the codecs read": "topic_config_error_code synonyms",
}


def names(groups: dict[str, str]) -> list[str]:
    return [name for listed in groups.values() for name in listed.split()]


def unused(paths: Iterable[Path]) -> dict[str, str]:
    """Name to place of what nothing below ``paths`` uses."""
    reader = Vulture(ignore_decorators=["@plant"])  # entered in a table by that
    reader.scavenge([str(path) for path in paths], exclude=list(NOT_READ))
    return {
        item.name: f"{item.filename}:{item.first_lineno}: unused {item.typ} {item.name!r}"
        for item in reader.get_unused_code(min_confidence=60)
    }


def dead(found: dict[str, str], allowed: Iterable[str]) -> dict[str, str]:
    """Of what is unused that which no name of ``allowed`` covers."""
    patterns = list(allowed)
    return {name: where for name, where in found.items() if not any(fnmatchcase(name, pattern) for pattern in patterns)}


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    """Return the unused names of the repository."""
    return unused([ROOT / folder for folder in USERS])


def named_in_docs() -> set[str]:
    documents = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    assert len(documents) > 5
    return set(re.findall(r"\w+", "\n".join(document.read_text() for document in documents)))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def used() -> None: ...\ndef dead() -> None: ...\nused()\n", {"dead"}),
        ("class Held:\n    kept: int = 0\n    lost: int = 0\nprint(Held().kept)\n", {"lost"}),
        ("def connection_made() -> None: ...\n", set()),
    ],
)
def test_dead_code_is_found(tmp_path: Path, source: str, expected: set[str]) -> None:
    (tmp_path / "planted.py").write_text(source)
    assert set(dead(unused([tmp_path]), names(CALLED_BY_OTHERS))) == expected


def test_nothing_is_dead(found: dict[str, str]) -> None:
    left = dead(found, names(CALLED_BY_OTHERS) + names(FOR_USERS))
    reported = named_in_docs()
    assert [where for name, where in sorted(left.items()) if name not in reported] == []


def test_no_name_is_allowed_for_nothing(found: dict[str, str]) -> None:
    assert len(found) > 50
    listed = [name for name in names(CALLED_BY_OTHERS) + names(FOR_USERS) if "*" not in name]
    assert [name for name in listed if name not in found] == []
