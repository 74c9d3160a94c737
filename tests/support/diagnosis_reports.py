"""The findings about a cluster, as `fencepost doctor` and the page report them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from fencepost.cli.main import main
from fencepost.cli.ui.cluster_monitor import ClusterMonitor, PageCluster
from fencepost.spark.sink.decision_store import DEFAULT_TOPIC

__all__ = ["Findings", "codes_in", "doctor", "page_of", "shown"]

Findings = dict[tuple[str, str], dict[str, Any]]
"""By code and name."""

_STATUSES: Final = {"error": 1, "unknown": 4, "warning": 3, "note": 0}  # the worst first


def doctor(servers: str, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Findings]:
    """Run doctor. Return its exit status, which is that of the worst finding, and the findings."""
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "--json", *words, "-b", servers])
    found = json.loads(capsys.readouterr().out)["findings"]
    severities = {each["severity"] for each in found}
    status = next((status for severity, status in _STATUSES.items() if severity in severities), 0)
    assert ended.value.code == status
    return status, {(each["code"], each["name"]): each for each in found}


@contextmanager
def page_of(servers: str) -> Iterator[ClusterMonitor]:
    """Watch a cluster as the page does."""
    monitor = ClusterMonitor(PageCluster({"bootstrap.servers": servers}), DEFAULT_TOPIC, every_s=0.2)
    try:
        yield monitor
    finally:
        monitor.close()


def shown(page: ClusterMonitor) -> set[tuple[str, str]]:
    """Return the codes and names of the findings in the page's overview."""
    return {(each["code"], each["name"]) for each in page.view("overview", {})["view"].get("attention", [])}


def codes_in(page: ClusterMonitor) -> set[str]:
    """Return the codes of the findings in the page's overview."""
    return {code for code, _ in shown(page)}
