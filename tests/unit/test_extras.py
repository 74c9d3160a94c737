"""Optional dependencies: each module names its extra, and the extra installs the packages."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator

import pytest

import fencepost
from fencepost.errors import ConfigurationError
from fencepost.extras import MODULES, require
from tests.support.readme import ROOT

MODULE_OF = {"aws-msk-iam-sasl-signer-python": "aws_msk_iam_sasl_signer"}  # where the package is called otherwise
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def installed_by(extra: str) -> Iterator[str]:
    for wanted in PROJECT["optional-dependencies"][extra]:
        other = re.fullmatch(r"fencepost\[(\w+)]", wanted)
        if other:
            yield from installed_by(other[1])
        else:
            name = re.split(r"[^\w-]", wanted)[0]
            yield MODULE_OF.get(name, name)


PACKAGES = {"jwt": "pyjwt"}  # by their modules, where the names differ


@pytest.mark.parametrize("extra", MODULES)
def test_an_extra_installs_what_is_asked_for(extra: str) -> None:
    packages = {PACKAGES.get(module, module) for module in MODULES[extra]}
    assert packages <= set(installed_by(extra))


def test_nothing_large_comes_with_the_package_itself() -> None:
    names = {re.split(r"[^\w-]", wanted)[0] for wanted in PROJECT["dependencies"]}
    assert "typer" in names
    assert not names & set(MODULES["spark"])


@pytest.mark.parametrize(
    ("program", "module", "missing", "extra"),
    [
        (
            "import fencepost.client.opentelemetry",
            "fencepost.client.opentelemetry",
            "opentelemetry",
            "opentelemetry",
        ),
        (
            "import fencepost.spark.opentelemetry",
            "fencepost.spark.opentelemetry",
            "opentelemetry",
            "opentelemetry",
        ),
        ("from fencepost.spark import arrow_pipeline", "fencepost.spark.pipeline", "pyarrow", "spark"),
        ("from fencepost.spark import exactly_once", "fencepost.spark.sink.foreach", "pyspark", "spark"),
    ],
)
def test_a_module_names_its_extra(program: str, module: str, missing: str, extra: str) -> None:
    hidden = f"import sys; sys.modules[{missing!r}] = None; {program}"
    done = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True, check=False)
    reported = f"{module} needs {missing}, not installed here: pip install 'fencepost[{extra}]'"
    assert done.stderr.splitlines()[-1] == f"ModuleNotFoundError: {reported}"


@pytest.fixture
def without_pyarrow(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    require.cache_clear()
    yield
    require.cache_clear()


@pytest.mark.usefixtures("without_pyarrow")
def test_arrow_names_its_extra() -> None:
    wanted = r"needs pyarrow, not installed here: pip install 'fencepost\[arrow]'"
    with fencepost.Broker() as broker:
        servers = broker.bootstrap_servers
        with fencepost.Producer(servers) as producer, pytest.raises(ConfigurationError, match=f"send_arrow {wanted}"):
            producer.send_arrow("t", None)  # no table can be made without pyarrow
        with fencepost.Consumer(servers) as consumer, pytest.raises(ConfigurationError, match=f"poll_arrow {wanted}"):
            consumer.poll_arrow(0)
