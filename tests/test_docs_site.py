"""The documentation builds as a site, and no link of it leads nowhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import fencepost
import fencepost.spark
from tests.support.readme import ROOT

DOCS = ROOT / "docs"

# Where each function of the package stands in its file is on no page, and to look for it takes half of the time;
# looking for garbage, of which there is little, takes a sixth of the rest.
MKDOCS = """
import gc, inspect

def nowhere(thing):
    raise OSError

gc.disable()
inspect.getsourcelines = nowhere
from mkdocs.__main__ import cli

cli()
"""


def build(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", MKDOCS, "build", "--strict", "-f", str(config), "-d", str(site)],
        cwd=config.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=480,
    )


@pytest.mark.slow
def test_the_site_is_built_with_every_page_and_takes_nothing_from_elsewhere(tmp_path: Path) -> None:
    done = build(ROOT / "mkdocs.yml", tmp_path / "site")
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {path.stem: path.read_text() for path in (tmp_path / "site").glob("*.html")}
    assert sorted(public_names() - anchors(pages["reference"])) == []
    assert {path.stem for path in DOCS.glob("*.md")} <= set(pages)
    for name, html in pages.items():
        assert not re.search(r'<(script|img|iframe)[^>]*\ssrc="?(https?:)?//', html), name
        assert not re.search(r'<link[^>]*rel="?stylesheet"?[^>]*href="?(https?:)?//', html), name


def test_the_figure_of_the_landing_page_was_measured() -> None:
    page = (DOCS / "index.md").read_text()
    found = re.search(r"runs at ([\d.]+) times the speed of Spark's own Kafka connector", page)
    assert found is not None
    name = "| Kafka to Kafka with Spark: fencepost, exactly once |"
    rows = [line for line in (DOCS / "performance.md").read_text().splitlines() if line.startswith(name)]
    cells = [row.split(" | ") for row in rows]
    assert [(row[3].rstrip("0123456789,"), row[4]) for row in cells] == [
        ("Spark's own, at least once ", f"{found[1]}x")
    ]


def public_names() -> set[str]:
    """Return what the reference has to have: every name, and every method of the blocking clients and the broker."""
    found = {f"fencepost.{name}" for name in fencepost.__all__} - {
        *("fencepost.__version__", "fencepost.config", "fencepost.errors")  # errors: transactions.md
    }
    found |= {f"fencepost.spark.{name}" for name in fencepost.spark.__all__}
    for name in ("Producer", "Consumer", "ShareConsumer", "Admin", "Broker"):
        members = dir(getattr(fencepost, name))
        methods = {
            member for member in members if member[0] != "_" and callable(getattr(getattr(fencepost, name), member))
        }
        assert len(methods) > 5
        found |= {f"fencepost.{name}.{method}" for method in methods}
    return found


def anchors(html: str) -> set[str]:
    return set(re.findall(r'id="(fencepost[.\w]*)"', html))


def test_the_fields_in_the_reference_are_those_of_the_classes() -> None:
    text = (DOCS / "reference.md").read_text()
    told = re.findall(r"^::: fencepost\.(\w+)\n(?: .*\n)?\n(?:Fields|Members): (.*)\.$", text, re.MULTILINE)
    assert len(told) == 12
    for name, names in told:
        kind = getattr(fencepost, name)
        fields = getattr(kind, "_fields", None) or getattr(kind, "__members__", None) or kind.__dataclass_fields__
        assert names == ", ".join(f"`{field}`" for field in fields), name


@pytest.mark.parametrize(("page", "heading"), [("nowhere", ""), ("other", "#nothing"), ("/other", "")])
def test_a_link_that_leads_nowhere_fails(page: str, heading: str, tmp_path: Path) -> None:
    """With the settings of the real site: a page, or a heading, that is not there; a path from the root."""
    pages = {
        "index": f"# Start\n\n[there]({link('other', '#other')}), [not]({link(page, heading)})\n",
        "other": "# Other\n",
    }
    (tmp_path / "docs").mkdir()
    for name, text in pages.items():
        (tmp_path / "docs" / link(name)).write_text(text)
    config = tmp_path / "mkdocs.yml"
    nav = ", ".join(map(link, pages))
    own = f"docs_dir: docs\nnav: [{nav}]\nplugins: []\ntheme:\n  name: mkdocs\n"
    config.write_text(f"INHERIT: {ROOT / 'mkdocs.yml'}\n{own}")
    done = build(config, tmp_path / "site")
    assert done.returncode != 0
    told = done.stdout + done.stderr
    assert told.count("WARNING") == 1, told
    assert (heading or link(page)) in told


def link(page: str, heading: str = "") -> str:
    """A page of no site of ours, which is therefore not spelled out here."""
    return f"{page}.md{heading}"


def test_links_of_readme_lead_to_files() -> None:
    for page in ("README.md", "DESIGN.md"):
        targets = re.findall(r"\]\(((?!https?:)[^)#]+)", (ROOT / page).read_text())
        assert targets
        assert [target for target in targets if not (ROOT / target).exists()] == [], page
