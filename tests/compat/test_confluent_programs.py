"""Programs of confluent-kafka's own package, with its module and with ours: the verifiable producer and consumer."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import fencepost
from fencepost.broker.embedded import Broker
from fencepost.testing import read_all

RECORDS = 500
# In a process of its own the programs find our module under the name that they import.
OURS = """
import sys
from fencepost.compat import confluent_kafka
sys.modules["confluent_kafka"] = confluent_kafka
"""
# Two of their lines were not moved to Python 3.
RUN = """
import functools, json, runpy, sys
json.dumps = functools.partial(json.dumps, default=bytes.decode)
sys.argv = sys.argv[1:]
sys.path.insert(0, sys.argv[0].rpartition("/")[0])
from verifiable_client import VerifiableClient

def set_config(conf, args):
    settings = {name: value for name, value in args.items() if value is not None}
    conf.update({name.partition("_")[2]: value for name, value in settings.items() if "conf_" in name})

VerifiableClient.set_config = staticmethod(set_config)
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def events(module: str, program: str, *arguments: str) -> list[dict[str, Any]]:
    """The events that a program printed. It is asked to end when it has read all records."""
    package = find_spec("confluent_kafka")
    assert package is not None
    assert package.origin is not None
    path = Path(package.origin).with_name("kafkatest") / program
    code = RUN if module == "theirs" else OURS + RUN
    command = [sys.executable, "-c", code, str(path), *arguments]
    found: list[dict[str, Any]] = []
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as running,
    ):
        assert running.stdout is not None
        for line in running.stdout:
            found.append(json.loads(line))
            if found[-1]["name"] == "records_consumed" and consumed(found) >= RECORDS:
                running.terminate()
        errors.seek(0)
        assert running.wait(60) == 0, errors.read()[-2000:]
    return found


def consumed(found: list[dict[str, Any]]) -> int:
    return sum(each["count"] for each in found if each["name"] == "records_consumed")


@pytest.mark.parametrize("module", ["theirs", "ours"])
def test_verifiable_programs(module: str) -> None:
    with Broker() as broker, fencepost.Admin(broker.bootstrap_servers) as admin:
        admin.create_topic("t", 3)
        servers = ("--broker-list", broker.bootstrap_servers, "--topic", "t")
        limit = ("--max-messages", str(RECORDS))
        sent = events(module, "verifiable_producer.py", *servers, *limit, "--acks", "-1")
        assert Counter(each["name"] for each in sent)["producer_send_success"] == RECORDS
        assert not [each for each in sent if each["name"] == "producer_send_error"]
        assert sorted(int(record.value or b"") for record in read_all(broker, "t")) == list(range(RECORDS))
        seen = events(module, "verifiable_consumer.py", *servers, *limit, "--group-id", "g")
        kinds = [each["name"] for each in seen]
        assert kinds[0] == "partitions_assigned"
        assert kinds.count("partitions_revoked") == 1
        assert consumed(seen) == RECORDS
        assert [each["success"] for each in seen if each["name"] == "offsets_committed"]
        assert all(each["success"] for each in seen if each["name"] == "offsets_committed")
        assert sum(at.offset for at in admin.group_offsets("g").values()) == RECORDS
