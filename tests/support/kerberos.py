"""A Kerberos KDC of its own (MIT's), an Apache Kafka whose users log in by it, and the Python package of the client.

The package gssapi has no wheels. Where it is not installed, it is compiled once into the cache folder of the tests'
other downloads, half a minute without optimisation.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self

from fencepost_lab.torture.child_process import dies_with_starter
from tests.support.apache_kafka import TEST_NODE, ApacheKafka, Setting
from tests.support.debian import Unavailable, provided

REALM = "FENCEPOST.TEST"
SERVICE = f"kafka/127.0.0.1@{REALM}"
PACKAGES = "krb5-kdc krb5-admin-server krb5-user libkrb5-dev"
GSSAPI = "gssapi==1.12.0"
SESSION_MS = 2_000  # after which Kafka wants a client to log in again
_KRB5_MODULE = "com.sun.security.auth.module.Krb5LoginModule"
_PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit", "krb5-config")

# Hosts are taken as they are written: what a resolver says of 127.0.0.1 differs between machines.
_KRB5_CONF = """
[libdefaults]
  default_realm = {realm}
  dns_lookup_realm = false
  dns_lookup_kdc = false
  dns_canonicalize_hostname = false
  rdns = false
  udp_preference_limit = 1
  default_ccache_name = FILE:{folder}/default-cache
[realms]
  {realm} = {{
    kdc = 127.0.0.1:{port}
  }}
"""
_KDC_CONF = """
[kdcdefaults]
  kdc_listen = 127.0.0.1:{port}
  kdc_tcp_listen = 127.0.0.1:{port}
[realms]
  {realm} = {{
    database_name = {folder}/principals
    key_stash_file = {folder}/stash
    max_life = 10h
    supported_enctypes = aes256-cts-hmac-sha1-96:normal
  }}
[logging]
  kdc = FILE:{folder}/kdc.log
"""


class Kdc:
    """`with Kdc(folder) as kdc`: running, with the service's principal; `environment` makes programs ask it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment: dict[str, str] = {}
        self._programs: Mapping[str, str] = {}
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._programs = _provided()
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        for name, text in (("krb5.conf", _KRB5_CONF), ("kdc.conf", _KDC_CONF)):
            (self.folder / name).write_text(text.format(realm=REALM, folder=self.folder, port=port))
        self.environment = {
            "KRB5_CONFIG": str(self.folder / "krb5.conf"),
            "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf"),
        }
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "of this database")
        self._process = subprocess.Popen(
            [*dies_with_starter(), self._programs["krb5kdc"], "-n"], env={**os.environ, **self.environment}
        )
        until = time.monotonic() + 20
        while time.monotonic() < until and self._process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
            except OSError:
                time.sleep(0.02)
            else:
                return self
        raise RuntimeError(f"krb5kdc does not answer: {(self.folder / 'kdc.log').read_text()}")

    def tickets(self, principal: str) -> int:
        """Count the ticket-granting tickets that the principal has received."""
        log = (self.folder / "kdc.log").read_text()
        return sum("AS_REQ" in line and "ISSUE" in line and f" {principal}@" in line for line in log.splitlines())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    def keytab(self, principal: str, *options: str) -> Path:
        """A new principal's file of keys; `options` are those of kadmin's addprinc, e.g. -maxlife."""
        path = self.folder / f"{principal.replace('/', '-')}.keytab"
        self._run("kadmin.local", "-r", REALM, "addprinc", "-randkey", *options, principal)
        self._run("kadmin.local", "-r", REALM, "ktadd", "-k", str(path), principal)
        return path

    def ticket(self, principal: str, keytab: Path, cache: Path, *options: str) -> None:
        """Put a ticket into the cache with kinit."""
        self._run("kinit", *options, "-c", f"FILE:{cache}", "-k", "-t", str(keytab), principal)

    def change_key(self, principal: str) -> None:
        """So that its keytab is no longer the right one."""
        self._run("kadmin.local", "-r", REALM, "cpw", "-randkey", principal)

    def delete(self, principal: str) -> None:
        self._run("kadmin.local", "-r", REALM, "delprinc", "-force", principal)

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._programs[program], *arguments],
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{program} {' '.join(arguments)}: {done.stdout}{done.stderr}")


def kerberos_kafka(kdc: Kdc) -> ApacheKafka:
    """Not started: its listener KERBEROS takes GSSAPI without TLS, its sessions end after SESSION_MS."""
    keytab = kdc.keytab(SERVICE)
    listener = "listener.name.kerberos.gssapi"
    properties: dict[str, Setting] = {
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        f"{listener}.sasl.jaas.config": (
            f'{_KRB5_MODULE} required useKeyTab=true storeKey=true keyTab="{keytab}" principal="{SERVICE}";'
        ),
        f"{listener}.connections.max.reauth.ms": SESSION_MS,
    }
    options = (*TEST_NODE, f"-Djava.security.krb5.conf={kdc.environment['KRB5_CONFIG']}")
    return ApacheKafka(properties, listeners={"KERBEROS": "SASL_PLAINTEXT"}, jvm_options=options)


def package() -> Path | None:
    """The folder to import gssapi from, None where it is installed. Raises Unavailable when it cannot be compiled."""
    if find_spec("gssapi") is not None:
        return None
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fencepost"
    folder = root / f"{GSSAPI.replace('==', '-')}-{sysconfig.get_config_var('SOABI')}"
    if folder.is_dir():
        return folder
    _provided()
    root.mkdir(parents=True, exist_ok=True)
    with open(root / "gssapi.lock", "w") as lock, tempfile.TemporaryDirectory(dir=root) as unfinished:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes may start on an empty cache at once
        if folder.is_dir():
            return folder
        target = Path(unfinished) / "packages"
        done = subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(target), GSSAPI],
            env={**os.environ, "CFLAGS": "-O0 -g0"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise Unavailable(f"{GSSAPI} cannot be compiled: {done.stderr[-1000:]}")
        target.rename(folder)
    return folder


def unavailable_reason() -> str | None:
    """Return the reason why Kerberos is not available, or None."""
    try:
        _provided()
        package()
    except Unavailable as reason:
        return str(reason)
    return None


def _provided() -> Mapping[str, str]:
    return provided(PACKAGES, _programs, f"no {', '.join(_PROGRAMS)}, or no krb5-config: Debian's {PACKAGES}")


def _programs() -> Mapping[str, str] | None:
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin"))
    found = {name: shutil.which(name, path=path) for name in _PROGRAMS}
    return None if None in found.values() else {name: str(where) for name, where in found.items()}
