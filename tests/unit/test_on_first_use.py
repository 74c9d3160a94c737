"""Names that are loaded on first use are those that the type checker sees, and what nobody uses is not loaded."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest


def seen_by_the_type_checker(package: str) -> dict[str, str]:
    """The module of each name that is imported under TYPE_CHECKING."""
    tree = ast.parse(Path(str(import_module(package).__file__)).read_text())
    (block,) = [
        statement
        for statement in tree.body
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING"
    ]
    return {
        alias.name: str(statement.module)
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }


PACKAGES = "fencepost fencepost.client.admin fencepost.client.aio fencepost.client.blocking fencepost.spark"


@pytest.mark.parametrize("package", PACKAGES.split())
def test_names_are_found_where_the_type_checker_sees_them(package: str) -> None:
    module, seen = import_module(package), seen_by_the_type_checker(package)
    assert len(seen) > 3
    for name, home in seen.items():
        assert getattr(module, name) is getattr(import_module(home), name)
        assert name in dir(module)
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'Brocker'"):
        module.Brocker  # noqa: B018 - the access is what is tested


def loaded_by(statement: str) -> set[str]:
    """The modules that a fresh process has then."""
    code = f"import sys; {statement}; print(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_importing_the_package_imports_next_to_nothing() -> None:
    """Not by the clock: what takes its time are modules, and these are counted."""
    bare = loaded_by("pass")
    for package in ("fencepost", "fencepost.client", "fencepost.broker"):
        loaded = loaded_by(f"import {package}") - bare
        assert package in loaded
        assert not {name for name in loaded if not name.startswith("fencepost")} & {
            "asyncio",
            "typer",
            "logging",
            "ssl",
        }
        assert len([name for name in loaded if name.startswith("fencepost")]) < 5


@pytest.mark.parametrize("was", ["enable", "disable"])
def test_an_import_collects_no_garbage_and_leaves_the_collector_as_it_was(was: str) -> None:
    code = f"""
import gc, fencepost
gc.{was}()
collected = []
gc.callbacks.append(lambda phase, found: collected.append(found))
from fencepost import Producer
print(gc.isenabled(), len(collected) < 5)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{was == 'enable'} True\n"


def test_no_public_name_brings_numpy_along() -> None:
    loaded = loaded_by("from fencepost import *; import fencepost.testing")
    assert {"fencepost.broker.embedded", "fencepost.client.consumer.core"} < loaded
    assert not {"numpy", "pyarrow", "pandas", "pyspark"} & loaded


def test_a_process_of_spark_loads_no_calls_that_the_sink_does_not_make() -> None:
    loaded = loaded_by("import fencepost.spark.sink.writer")
    calls = {name for name in loaded if name.startswith("fencepost.client.admin.")}
    assert calls == {
        f"fencepost.client.admin.{name}" for name in ("base", "configs", "items", "topics", "transactions")
    }


@pytest.mark.parametrize(("client", "module"), [("Producer", "blocking"), ("AsyncProducer", "aio")])
def test_who_only_produces_loads_no_consumer_and_no_admin(client: str, module: str) -> None:
    loaded = loaded_by(f"from fencepost import {client}")
    assert f"fencepost.client.{module}.producer" in loaded
    assert not {f"fencepost.client.{module}.{other}" for other in ("consumer", "admin")} & loaded
    assert not {"fencepost.client.consumer.core", "fencepost.client.admin.core"} & loaded


RARELY_USED = {
    "cramjam",  # the first compressed batch loads it
    "fencepost.client.net.markers",  # a search for the outcome of a transaction in logs
    "fencepost.client.net.sasl_login",
    "fencepost.client.net.tls",
    "fencepost.client.proxies",
    "fencepost.config_providers",
    "fencepost.sasl_settings",
    "hashlib",
    "json",
    "pathlib",
    "secrets",
    "tempfile",
}


@pytest.mark.parametrize("client", ["Producer", "Consumer", "AsyncProducer", "AsyncConsumer"])
def test_a_client_without_tls_login_and_proxy_loads_none_of_their_modules(client: str) -> None:
    """They would take a sixth of the import, and 5 MB."""
    assert not RARELY_USED & loaded_by(f"from fencepost import {client}")


def test_a_client_with_tls_login_and_proxy_loads_their_modules() -> None:
    settings = {
        "bootstrap.servers": "127.0.0.1:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "ada",
        "sasl.password": "secret",
        "proxy.url": "socks5h://127.0.0.1:1",
    }
    loaded = loaded_by(f"from fencepost import Producer; Producer.from_config({settings}).close()")
    assert RARELY_USED - loaded <= {"cramjam", "fencepost.client.net.markers", "secrets"}
