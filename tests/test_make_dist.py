"""The distributions of a release: their contents, the same bytes from each build, checksums and a signature."""

from __future__ import annotations

import email
import re
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.support.tidy import ROOT
from tools import make_dist
from tools.make_dist import (
    PROJECTS,
    ReleaseError,
    build,
    differences,
    is_announced,
    programs_in,
    the_version,
    write_sums,
)
from tools.release_addresses import AddressError, repository_of, with_absolute_links

PURE = ("fencepost", "fencepost-lab")


def committed(target: Path) -> Path:
    """A repository whose only commit has the present sources."""
    for name in ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", ".gitignore"):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target / name)
    for name in ("src", "lab"):
        shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
    (target / "tests").mkdir()
    (target / "tests" / "test_x.py").write_text("")
    who = ["-c", "user.name=n", "-c", "user.email=n@example.com", "-c", "commit.gpgsign=false"]
    for words in (["init", "--quiet"], ["add", "--all"], [*who, "commit", "--quiet", "--message", "x"]):
        subprocess.run(["git", *words], cwd=target, check=True)
    return target


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return committed(tmp_path_factory.mktemp("repository"))


@pytest.fixture(scope="module")
def built(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("dist")
    files = build(repository, target, PURE, target.with_name("source"), isolated=False)
    version = the_version(ROOT)
    assert [path.name for path in files] == [
        f"{name}-{version}{end}" for name in ("fencepost", "fencepost_lab") for end in ("-py3-none-any.whl", ".tar.gz")
    ]
    return target


def names_in(file: Path) -> set[str]:
    if file.suffix == ".whl":
        return set(zipfile.ZipFile(file).namelist())
    with tarfile.open(file) as archive:
        return {name.partition("/")[2] for name in archive.getnames()}


def test_each_file_has_its_own_sources_and_nothing_else(built: Path) -> None:
    expected = {
        "fencepost": ("src", ("fencepost", "pyspark_fencepost")),
        "fencepost_lab": ("lab/src", ("fencepost_lab",)),
    }
    beside = {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "PKG-INFO", ".gitignore"}
    for name, (folder, packages) in expected.items():
        root = ROOT / folder
        sources = {
            path.relative_to(root).as_posix()
            for package in packages
            for path in (root / package).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
        assert len(sources) > 50
        (wheel,) = built.glob(f"{name}-*.whl")
        assert {each for each in names_in(wheel) if ".dist-info/" not in each} == sources
        (sdist,) = built.glob(f"{name}-*.tar.gz")
        inside = names_in(sdist)
        assert {each.removeprefix("src/") for each in inside if each.startswith("src/")} == sources
        assert {each for each in inside if not each.startswith("src/")} <= beside
        assert {"README.md", "LICENSE"} <= inside


def test_the_same_commit_gives_the_same_bytes(repository: Path, built: Path, tmp_path: Path) -> None:
    taken = tmp_path.with_name("taken")
    taken.mkdir()
    with pytest.raises(ReleaseError, match="taken exists: another build runs"):
        build(repository, tmp_path, PURE, taken, isolated=False)
    build(repository, tmp_path, PURE, tmp_path.with_name("source"), isolated=False)
    assert len(list(tmp_path.iterdir())) == 4
    assert differences(built, tmp_path) == []
    wheel = next(tmp_path.glob("*.whl"))
    wheel.write_bytes(wheel.read_bytes() + b"x")
    (tmp_path / "more").write_text("")
    assert differences(built, tmp_path) == sorted([wheel.name, "more"])


def test_checksums_and_signature_are_verified_by_others(tmp_path: Path) -> None:
    (tmp_path / "a.whl").write_bytes(b"a")
    sums = write_sums(tmp_path)
    check = ["sha256sum", "--check", "--strict", sums.name]
    assert subprocess.run(check, cwd=tmp_path, capture_output=True, text=True, check=True).stdout == "a.whl: OK\n"
    if shutil.which("ssh-keygen") is None:
        pytest.skip("ssh-keygen is not installed")
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", key], check=True)
    make_dist.sign(sums, key)
    (tmp_path / "signers").write_text(f"release {key.with_suffix('.pub').read_text()}")
    verify = ["ssh-keygen", "-Y", "verify", "-f", "signers", "-I", "release", "-n", "file", "-s", f"{sums.name}.sig"]
    for content, valid in ((sums.read_bytes(), True), (sums.read_bytes() + b" ", False)):
        done = subprocess.run(verify, cwd=tmp_path, input=content, capture_output=True, check=False)
        assert (done.returncode == 0) is valid


def test_versions_that_differ_are_refused(tmp_path: Path) -> None:
    for folder in PROJECTS.values():
        (tmp_path / folder).mkdir(exist_ok=True)
        shutil.copy(ROOT / folder / "pyproject.toml", tmp_path / folder / "pyproject.toml")
    shutil.copy(ROOT / "native" / "Cargo.toml", tmp_path / "native" / "Cargo.toml")
    assert the_version(tmp_path) == the_version(ROOT)
    for file in (
        *(tmp_path / folder / "pyproject.toml" for folder in PROJECTS.values()),
        tmp_path / "native/Cargo.toml",
    ):
        before = file.read_text()
        file.write_text(before.replace(f'version = "{the_version(ROOT)}"', 'version = "9.9.9"', 1))
        with pytest.raises(ReleaseError, match=r"versions differ: .*9\.9\.9"):
            the_version(tmp_path)
        file.write_text(before)


def test_packages_that_belong_together_ask_for_one_version() -> None:
    version = the_version(ROOT)
    assert f'"fencepost-native=={version}"' in (ROOT / "pyproject.toml").read_text()
    laboratory = (ROOT / "lab" / "pyproject.toml").read_text()
    assert laboratory.count(f"=={version}") == 2  # fencepost[arrow], fencepost[spark]


ADDRESS = "https://code.example/owner/fencepost"


def test_a_release_has_absolute_links_and_urls(tmp_path: Path) -> None:
    origin = committed(tmp_path)
    file = origin / "pyproject.toml"
    file.write_text(file.read_text().replace('repository = ""', f'repository = "{ADDRESS}/"'))
    who = ["-c", "user.name=n", "-c", "user.email=n@example.com", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *who, "commit", "--quiet", "--all", "--message", "y"], cwd=origin, check=True)
    target = tmp_path / "dist"
    build(origin, target, PURE, tmp_path / "source", isolated=False)
    version = the_version(ROOT)
    for wheel in target.glob("*.whl"):
        with zipfile.ZipFile(wheel) as opened:
            (name,) = (each for each in opened.namelist() if each.endswith("METADATA"))
            metadata = email.message_from_bytes(opened.read(name))
        urls = dict(each.split(", ", 1) for each in metadata.get_all("Project-URL") or [])
        assert urls["Repository"] == ADDRESS
        assert urls["Changelog"] == f"{ADDRESS}/blob/v{version}/CHANGELOG.md"
        readme = str(metadata.get_payload())
        targets = re.findall(r"\]\(([^)]*)\)", readme)
        assert [each for each in targets if not each.startswith(("https://", "#"))] == [], wheel.name
        if wheel.name.startswith("fencepost-"):
            assert f"{ADDRESS}/blob/v{version}/docs/broker.md#rights" in targets
            assert f"{ADDRESS}/raw/v{version}/docs/ui.png" in targets
    for each in targets_of(ROOT / "README.md"):
        assert (ROOT / each.partition("#")[0]).exists(), each


def targets_of(readme: Path) -> list[str]:
    """Relative links, which become absolute ones."""
    return [each for each in re.findall(r"\]\(([^)]*)\)", readme.read_text()) if not re.match("[a-z]+:|#", each)]


def test_links_of_a_folder_and_of_the_same_page() -> None:
    text = "[a](../docs/x.md#y) ![b](p.png) [c](#here) [d](https://other.example/) [e](mailto:x@other.example)"
    assert with_absolute_links(text, ADDRESS, "v1", "lab") == (
        f"[a]({ADDRESS}/blob/v1/docs/x.md#y) ![b]({ADDRESS}/raw/v1/lab/p.png) [c](#here) [d](https://other.example/) "
        "[e](mailto:x@other.example)"
    )


@pytest.mark.parametrize(
    "address", ["http://code.example/a/b", "code.example/a/b", "https://code.example", "https:///x"]
)
def test_an_address_that_leads_nowhere_is_refused(address: str) -> None:
    with pytest.raises(AddressError, match="is not of the form"):
        repository_of(f'[tool.fencepost]\nrepository = "{address}"\n')


def test_a_release_without_an_address_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    origin = committed(tmp_path)
    changelog = origin / "CHANGELOG.md"
    changelog.write_text(changelog.read_text().replace("- Unreleased", "- 2026-01-31", 1))
    for each in ("native",):
        (origin / each).mkdir()
        for name in ("pyproject.toml", "Cargo.toml"):
            shutil.copy(ROOT / each / name, origin / each / name)
    who = ["-c", "user.name=n", "-c", "user.email=n@example.com", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "add", "--all"], cwd=origin, check=True)
    subprocess.run(["git", *who, "commit", "--quiet", "--message", "y"], cwd=origin, check=True)
    monkeypatch.setattr(make_dist, "ROOT", origin)
    with pytest.raises(ReleaseError, match=r"tool\.fencepost\.repository in pyproject\.toml is empty"):
        make_dist.make(tmp_path / "dist", snapshot=False, key=None, projects=PURE, pythons=())


def test_the_changelog_needs_a_section_with_a_date() -> None:
    assert is_announced("# Changelog\n\n## [1.2.3] - 2026-01-31\n", "1.2.3")
    for changelog in ("## [1.2.3] - Unreleased\n", "## [1.2.30] - 2026-01-31\n", "## [1x2.3] - 2026-01-31\n", ""):
        assert not is_announced(changelog, "1.2.3")


def test_a_release_is_told_on_one_screen_or_two() -> None:
    sections = (ROOT / "CHANGELOG.md").read_text().split("\n## ")[1:]
    assert sections
    assert max(section.count("\n") for section in sections) <= 80


def test_programs_of_the_readme_are_found() -> None:
    assert programs_in("```python\na = 1\n```\n```python\nimport pyspark\n```\n```console\n$ x\n```\n") == ["a = 1\n"]
    assert len(programs_in((ROOT / "README.md").read_text())) >= 3


def test_a_failing_command_is_told_with_its_output(tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match=r"git nothing failed with status 1:\n.*'nothing' is not a git command"):
        make_dist.run(["git", "nothing"], tmp_path)


def test_a_missing_program_and_a_folder_that_cannot_be_made_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(make_dist, "run", lambda *_, **__: "")
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit, match=r"^error: .*Not a directory: '.*file/dist'"):
        make_dist.main(["--snapshot", "--into", str(tmp_path / "file" / "dist")])
    monkeypatch.undo()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match=r"^error: .*No such file or directory: 'git'"):
        make_dist.main(["--snapshot", "--into", str(tmp_path / "dist")])


def test_a_command_that_never_ends_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_dist, "LIMIT_S", 0.1)
    with pytest.raises(ReleaseError, match=r"^sleep 60 has not ended after 0\.1 s"):
        make_dist.run(["sleep", "60"], tmp_path)


@pytest.mark.parametrize("changed", ["a folder with files", "a version without a date"])
def test_what_is_missing_is_named_before_anything_is_built(
    changed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(make_dist, "build", lambda *_, **__: pytest.fail("built"))
    monkeypatch.setattr(make_dist, "run", lambda *_, **__: "")
    (tmp_path / "file").write_text("")
    options = ["--snapshot"] if changed == "a folder with files" else []
    with pytest.raises(SystemExit, match=r"is not empty|has no section"):
        make_dist.main(["--into", str(tmp_path), *options])


def test_a_python_is_found_where_pyenv_and_uv_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In PATH there is only a shim that does not start."""
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "uv"))
    for folder, status in (
        ("shims", 127),
        ("versions/3.80.2/bin", 0),
        ("versions/3.80.10/bin", 0),
        ("uv/cpython-3.81.0-linux/bin", 0),
    ):
        number = "3.81" if "3.81" in folder else "3.80"
        program = tmp_path / folder / f"python{number}"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\nexit {status}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "shims"), prepend=":")
    assert list(make_dist.present(["python3.80", "python3.81", "python3.82"])) == [
        str(tmp_path / "versions/3.80.10/bin/python3.80"),
        str(tmp_path / "uv/cpython-3.81.0-linux/bin/python3.81"),
    ]
    assert capsys.readouterr().err == "==> python3.82 is not installed here: the wheels are not tried with it\n"
