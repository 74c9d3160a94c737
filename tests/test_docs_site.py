"""The documentation builds as a site, and no link of it leads nowhere."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import fencepost
import fencepost.spark
from tests.support.axe import WCAG, violations
from tests.support.chromium import chromium
from tests.support.readme import ROOT
from tools.npm import NpmError, check_hash, fetched
from tools.site_hooks import VENDORED

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from playwright.sync_api import Page as Tab

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


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site with its own scripts."""
    try:
        for source in VENDORED.values():
            fetched(source)
    except NpmError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("docs") / "site"
    done = build(ROOT / "mkdocs.yml", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.slow
def test_the_site_has_every_page_and_takes_nothing_from_elsewhere(site: Path) -> None:
    pages = {path.stem: path.read_text() for path in site.glob("*.html")}
    assert sorted(public_names() - anchors(pages["reference"])) == []
    assert {path.stem for path in DOCS.glob("*.md")} <= set(pages)
    assert {name: found for name, html in pages.items() if (found := foreign(html))} == {}
    styles = "".join(path.read_text() for path in site.rglob("*.css"))
    assert re.findall(r"(?:@import|url\()[ \"']*(?:https?:)?//[^)\"']*", styles) == []


def foreign(html: str) -> list[str]:
    """Return the tags that load something from another host. Ordinary links load nothing."""
    tags = re.findall(r"<(?:script|img|iframe|link|source|object|embed)\b[^>]*>", html)
    return [tag for tag in tags if re.search(r"""\s(?:src|href|data)=["']?(?:https?:)?//""", tag)]


def test_a_tag_that_loads_from_elsewhere_is_found() -> None:
    there = '<script src="https://scripts.example/x"></script><link rel=preconnect href=//fonts.example>'
    assert len(foreign(there + '<img src="a.png"><a href="https://kafka.apache.org">')) == 2


def test_a_package_that_was_replaced_is_refused() -> None:
    with pytest.raises(NpmError, match="SHA-512 is"):
        check_hash(VENDORED["vendor/iframe-worker.js"], b"another archive")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as instance:
        yield instance


@pytest.fixture
def show(browser: Browser, site: Path) -> Iterator[Callable[..., Tab]]:
    """Open a page as a file, in a tab that may ask no host for anything."""
    contexts = []
    asked: list[str] = []

    def open_tab(page: str, **look: Any) -> Tab:
        contexts.append(browser.new_context(reduced_motion="reduce", **look))
        tab = contexts[-1].new_page()
        tab.set_default_timeout(60_000)
        tab.on("request", lambda request: asked.append(request.url))
        tab.goto((site / page).as_uri())
        return tab

    yield open_tab
    for context in contexts:
        context.close()
    assert [url for url in asked if url.partition(":")[0] not in ("file", "data", "blob")] == []


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize(
    ("words", "wanted"),
    [("disk full", "at-night.html#fp104"), ("reset offsets", "command-line.html#reset-offsets")],
)
def test_search_finds_the_remedy_without_a_server(words: str, wanted: str, show: Callable[..., Tab]) -> None:
    """Among the results of the first five pages."""
    tab = show("index.html")
    field = tab.get_by_placeholder("Search")
    field.click()
    tab.get_by_text("Type to start searching").wait_for()  # the index is loaded
    field.press_sequentially(words)  # the page reads the field when a key is released
    tab.locator(".md-search-result__item").first.wait_for()
    found = tab.evaluate("""() => [...document.querySelectorAll('.md-search-result__item')].slice(0, 5)
        .flatMap((item) => [...item.querySelectorAll('a')].map((link) => link.getAttribute('href')))""")
    assert any(wanted in each for each in found), found


@pytest.mark.slow
@pytest.mark.browser
def test_diagrams_are_drawn_without_a_network(show: Callable[..., Tab]) -> None:
    """The theme puts each drawing into a closed shadow tree, in place of the text of the diagram."""
    tab = show("states.html")
    diagrams = (DOCS / "states.md").read_text().count("```mermaid")
    tab.wait_for_function(f"document.querySelectorAll('div.mermaid').length === {diagrams}")
    assert diagrams > 5
    assert tab.locator("pre.mermaid").count() == 0
    height = tab.locator("div.mermaid").first.evaluate("(drawn) => drawn.getBoundingClientRect().height")
    assert height > 100


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("page", ["index", "tutorial", "states", "faq", "command-line"])
def test_axe_finds_nothing(page: str, scheme: str, show: Callable[..., Tab]) -> None:
    """By the rules of WCAG 2.2, A and AA. The theme breaks a rule beyond these: its copy buttons are landmarks.

    The window is so high that no entry of the navigation is cut at an edge, where its target would be too small.
    """
    tab = show(f"{page}.html", color_scheme=scheme, viewport={"width": 1280, "height": 2000})
    assert violations(tab, WCAG) == []


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
    reported = re.findall(r"^::: fencepost\.(\w+)\n(?: .*\n)?\n(?:Fields|Members): (.*)\.$", text, re.MULTILINE)
    assert len(reported) == 12
    for name, names in reported:
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
    own = f"docs_dir: docs\nnav: [{nav}]\nplugins: []\nhooks: []\nextra_css: []\ntheme:\n  name: mkdocs\n"
    config.write_text(f"INHERIT: {ROOT / 'mkdocs.yml'}\n{own}")
    done = build(config, tmp_path / "site")
    assert done.returncode != 0
    reported = done.stdout + done.stderr
    assert reported.count("WARNING") == 1, reported
    assert (heading or link(page)) in reported


def link(page: str, heading: str = "") -> str:
    """A page of no site of ours, which is therefore not spelled out here."""
    return f"{page}.md{heading}"


def test_links_of_readme_lead_to_files() -> None:
    for page in ("README.md", "DESIGN.md"):
        targets = re.findall(r"\]\(((?!https?:)[^)#]+)", (ROOT / page).read_text())
        assert targets
        assert [target for target in targets if not (ROOT / target).exists()] == [], page
