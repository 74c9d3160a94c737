"""docs/alerts.yml: rules that Prometheus takes, about metrics that are served, with links to sections that exist."""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import fencepost
from fencepost.client.diagnosis.limits import Limits
from tests.support.debian import Unavailable, unpacked
from tests.support.tidy import ROOT
from tests.unit.broker.metrics.test_metrics_endpoint import SERVED

FILE = ROOT / "docs" / "alerts.yml"
TEXT = FILE.read_text()
OF_PROMETHEUS = {"up", "process_open_fds", "process_max_fds"}
"""Names that Prometheus and its library give."""


def rules(text: str) -> list[Any]:
    (group,) = import_module("yaml").safe_load(text)["groups"]
    return list(group["rules"])


def metrics_in(expression: str) -> set[str]:
    """Return the names of metrics: words with an underscore, or `up`, that no parenthesis and no = follows."""
    without_labels = re.sub(r"\{[^}]*\}", "", expression)
    found: list[str] = re.findall(r"\b(?:up|[a-z]+(?:_[a-z]+)+)\b(?!\s*\()", without_labels)
    return set(found)


def wrong(text: str) -> list[str]:
    """Return names that are not served, and links to what is not there."""
    sections = set(re.findall(r"^### (FP\d+)$", (ROOT / "docs" / "at-night.md").read_text(), re.MULTILINE))
    found = []
    for rule in rules(text):
        metrics = metrics_in(rule["expr"])
        found += sorted(metrics - SERVED - OF_PROMETHEUS) or ([] if metrics else [f"{rule['alert']}: no metric"])
        page, _, section = rule["annotations"]["runbook_url"].partition("#")
        if page != "docs/at-night.md" or (section and section.upper() not in sections):
            found.append(rule["annotations"]["runbook_url"])
    return found


def test_names_of_metrics_are_found_in_expressions() -> None:
    expression = 'min_over_time(a_b[5m]) > 0 and on (instance) up{job="c_d"} or histogram_quantile(0.9, e_bucket)'
    assert metrics_in(expression) == {"a_b", "up", "e_bucket"}


def test_each_alert_asks_for_what_is_served_and_links_to_its_section() -> None:
    assert len(rules(TEXT)) > 10
    assert wrong(TEXT) == []
    planted = TEXT.replace("broker_markers_pending", "broker_markers").replace("#fp402", "#fp499")
    assert wrong(planted) == ["docs/at-night.md#fp499", "fencepost_broker_markers"]


def test_the_limits_of_the_disk_are_those_of_doctor() -> None:
    """One rule: an alert and the finding that it links to come and go together."""
    share = "fencepost_broker_disk_free_bytes / (fencepost_broker_disk_total_bytes > 0)"
    found = {rule["annotations"]["runbook_url"]: rule["expr"] for rule in rules(TEXT) if share in rule["expr"]}
    assert found == {
        "docs/at-night.md#fp104": f"{share} <= {Limits().full_share:g}",
        "docs/at-night.md#fp105": f"{share} <= {Limits().nearly_full_share:g}",
    }


def test_the_space_is_that_of_the_data_directory(tmp_path: Path) -> None:
    with fencepost.Broker(data_dir=str(tmp_path)) as broker:
        before, seen, after = shutil.disk_usage(tmp_path), broker.metrics().gauges, shutil.disk_usage(tmp_path)
    assert seen["disk_total_bytes"] == before.total == after.total
    far = before.total / 100  # other programs write to the disk, too
    assert min(before.free, after.free) - far <= seen["disk_free_bytes"] <= max(before.free, after.free) + far


def test_each_alert_has_a_name_a_severity_and_a_summary() -> None:
    found = rules(TEXT)
    assert len({rule["alert"] for rule in found}) == len(found)
    assert {rule["labels"]["severity"] for rule in found} == {"critical", "warning", "info"}
    assert all(rule["annotations"]["summary"].endswith(".") for rule in found)


def test_prometheus_takes_the_rules(tmp_path: Path) -> None:
    try:
        promtool = shutil.which("promtool") or unpacked("prometheus", "usr/bin/promtool")
    except Unavailable as reason:
        pytest.skip(f"promtool: {reason}")
    planted = tmp_path / "planted.yml"
    planted.write_text(TEXT.replace("expr: ", "expr: sum(", 1))
    checked = [
        subprocess.run([promtool, "check", "rules", str(file)], capture_output=True, text=True, check=False)
        for file in (FILE, planted)
    ]
    assert [done.returncode == 0 for done in checked] == [True, False], [done.stderr for done in checked]
    assert f"{len(rules(TEXT))} rules found" in checked[0].stdout
