"""docs/support.md names the versions of the metadata and of the tests, and the release checklist names what exists."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.compat.test_kafka_versions import RELEASES
from tests.support.apache_kafka import ApacheKafka, StartFailed
from tests.support.tidy import ROOT
from tools.make_dist import PYTHONS

PAGE = (ROOT / "docs" / "support.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
PROJECTS = ("pyproject.toml", "lab/pyproject.toml", "native/pyproject.toml")


def row(name: str) -> str:
    (found,) = re.findall(rf"^\| {name}.*$", PAGE, re.MULTILINE)
    return str(found)


def versions_in(text: str) -> list[str]:
    return re.findall(r"\b\d\.\d+\b", text)


def project(name: str) -> dict[str, object]:
    return dict(tomllib.loads((ROOT / name).read_text())["project"])


def test_pythons_are_those_of_the_metadata_and_of_the_release() -> None:
    named = versions_in(row("Python"))
    assert [f"python{version}" for version in named] == list(PYTHONS)
    for name in PROJECTS:
        found = project(name)
        assert found["requires-python"] == f">={named[0]}", name
        listed = re.findall(r"Python :: (\d\.\d+)", " ".join(map(str, found.get("classifiers", []))))  # type: ignore[call-overload]
        assert listed in ([], named), name
    assert re.findall(r"Python :: (\d\.\d+)", (ROOT / "pyproject.toml").read_text()) == named


def test_kafkas_are_those_that_are_tested() -> None:
    oldest, *tested = versions_in(row("Apache Kafka"))
    assert tested == [release.rpartition(".")[0] for release in RELEASES]
    assert oldest == tested[0]


def test_sparks_are_those_of_the_extra_and_of_its_page() -> None:
    oldest, *_, newest = versions_in(row(r"\[PySpark\]"))
    assert f'"pyspark>={oldest}"' in (ROOT / "pyproject.toml").read_text()
    assert f"It needs PySpark {oldest} to {newest}" in (ROOT / "docs" / "spark.md").read_text()


def test_the_page_is_found() -> None:
    assert re.search(r": support\.md$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert "(docs/support.md)" in (ROOT / "README.md").read_text()
    assert "(docs/support.md)" in (ROOT / "SECURITY.md").read_text()


def checklist() -> str:
    """The section, with the steps of a release."""
    return CONTRIBUTING.partition("\n## Make a release\n")[2].partition("\n## ")[0]


def named_in_code() -> list[str]:
    return [" ".join(each.split()) for each in re.findall(r"`([^`]+)`", checklist())]


def test_the_checklist_has_its_steps() -> None:
    assert [int(number) for number in re.findall(r"^(\d+)\. ", checklist(), re.MULTILINE)] == [1, 2, 3, 4, 5]


def test_every_file_of_the_checklist_exists() -> None:
    files = [name for name in named_in_code() if re.fullmatch(r"[\w./-]+\.(?:toml|md|py|yml)", name)]
    assert len(files) >= 6
    assert [name for name in files if not (ROOT / name).is_file()] == []


def test_every_command_of_the_checklist_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named_targets = [name.split()[1] for name in named_in_code() if name.startswith("make ")]
    assert {"native", "test", "soak", "dist"} <= set(named_targets)
    assert set(named_targets) <= targets
    options = re.findall(r'ARGS="(--[a-z]+)', checklist())
    assert options
    source = (ROOT / "tools" / "make_dist.py").read_text()
    assert [option for option in options if f'"{option}"' not in source] == []
    assert "SHA256SUMS" in checklist()


@pytest.mark.parametrize("name", PROJECTS)
def test_the_checklist_names_each_file_with_a_version(name: str) -> None:
    assert name in named_in_code()
    assert isinstance(project(name)["version"], str)


def test_nothing_of_the_checklist_is_a_place_without_a_name() -> None:
    """A setting that the checklist names is in the file that it names for it."""
    (setting,) = re.findall(r"Set `tool\.fencepost\.(\w+)` in `pyproject\.toml`", checklist())
    assert setting in tomllib.loads(Path(ROOT / "pyproject.toml").read_text())["tool"]["fencepost"]


@pytest.mark.kafka
def test_a_node_whose_port_another_node_has_does_not_start() -> None:
    """Two processes may pick the same free port. A test would then ask the other's node, and look into its own data."""
    with ApacheKafka() as other:
        with pytest.raises(StartFailed, match="Address already in use"):
            ApacheKafka(port=other.port).start()
        assert other.is_running
