"""Java's share consumer and administrator (kafka-clients 4.4.0): the same answers from both brokers (KIP-932)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.brokers import BrokerUnderTest
from tests.support.java_programs import compile_java, java_program

pytestmark = pytest.mark.java

SOURCE = Path(__file__).parent.parent / "compat" / "java_shares" / "Shares.java"
EXPECTED = {
    "implicit": str(dict.fromkeys(range(20), 1)),
    "first-deliveries": "true",
    "only-the-new-one": "{20: 1}",
    "said": "true",
    "released-come-again": "{1: 1, 4: 1}",
    "second-deliveries": "true",
    "only-the-new-one-left": "{6: 1}",
    "then-another": "true",
    "deliveries": "5",
    "both-assigned": "2",
    "shared": "100/100",
    "taken": "{0: 1, 1: 1, 2: 1, 3: 1}",
    "taken-over": "{0: 1, 1: 1, 2: 1, 3: 1}",
    "taken-over-count": "2",
    "committed": "{3: 1, 4: 1, 5: 1, 9: 1, 10: 1, 11: 1}",
    "described": "Empty 0",
    "described-missing": "GroupIdNotFoundException",
    "lag": "0",
    "altered": "null",
    "after-alter": "{2: 1, 3: 1, 4: 1, 5: 1, 6: 1}",
    "alter-while-used": "GroupNotEmptyException",
    "delete-while-used": "GroupNotEmptyException",
    "described-in-use": "Stable 1",
    "offsets-deleted": "null",
    "offsets-deleted-again": "UnknownTopicOrPartitionException",
    "group-deleted": "null",
    "group-deleted-again": "GroupIdNotFoundException",
    "wrong-reset": "InvalidConfigurationException",
    "wrong-lock": "InvalidConfigurationException",
}
KINDS = ("abandoned", "committed", "exhausted", "explicit", "implicit", "shared")


@pytest.mark.slow
def test_what_java_sees_of_share_groups(broker: BrokerUnderTest, tmp_path: Path) -> None:
    compile_java([SOURCE], tmp_path)
    prefix = broker.name("")
    command = java_program("Shares", broker.bootstrap_servers, prefix, folder=tmp_path)
    ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    said = [line.removeprefix("> ").partition(" ") for line in ran.stdout.splitlines() if line.startswith("> ")]
    seen = {step: outcome.replace("=", ": ") for step, _, outcome in said}
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    listed = seen.pop("listed")
    assert all(f"{kind}{prefix}:Empty:Share" in listed for kind in KINDS), listed
    assert seen == EXPECTED
