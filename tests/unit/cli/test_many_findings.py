"""Thousands of affected objects do not make thousands of lines."""

from __future__ import annotations

import pytest

import fencepost
from fencepost.broker.embedded import Broker
from tests.support.commands import Commands


def test_doctor_describes_some_findings_of_a_code(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker() as broker, fencepost.Admin(broker.bootstrap_servers) as admin:
        run = Commands(broker.bootstrap_servers, capsys)
        admin.create_topic("t", 1)
        with fencepost.Producer(broker.bootstrap_servers) as producer:
            producer.send("t", b"x").result(60)
        for number in range(32):
            admin.alter_group_offsets(f"g-{number:02}", {("t", 0): 0})
        lines = run("doctor", "--no-probe", status=3).splitlines()
        assert [line.split()[3] for line in lines if line.startswith("FP502 warning: group ")] == [
            f"g-{number:02}:" for number in range(20)
        ]
        assert lines[-1] == "FP502 warning: 12 more groups, not described here; --json lists all"
        assert run.error == "fencepost: warnings: 32\n"
        run("doctor", "--no-probe", "--json", status=3)
