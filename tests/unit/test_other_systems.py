"""Use without modules and functions of POSIX, as on Windows: client and commands import, the broker names a reason."""

from __future__ import annotations

import subprocess
import sys

# What Windows' Python lacks of what Linux' has, as far as it can be taken away here.
PROGRAM = """
import asyncio, importlib, multiprocessing, os, pathlib, pkgutil, shutil, signal, socket, subprocess, sys, tempfile
import uuid

for name in "fcntl grp pwd resource syslog termios tty pty readline uvloop".split():
    sys.modules[name] = None
for name in "O_DIRECTORY O_CLOEXEC fork getuid geteuid pread pwrite pwritev sched_getaffinity sendfile".split():
    delattr(os, name)
for name in "SIGHUP SIGKILL SIGUSR1 SIGUSR2".split():
    delattr(signal, name)

import fencepost

names = [
    module.name
    for package in ("client", "protocol", "cli", "schemas", "testing", "broker")
    for module in pkgutil.walk_packages([f"{fencepost.__path__[0]}/{package}"], f"fencepost.{package}.")
    if not module.name.startswith("fencepost.protocol.messages.")
]
for name in (*names, "fencepost.testing"):
    importlib.import_module(name)
for name in fencepost.__all__:
    getattr(fencepost, name)
print(len(names))
try:
    fencepost.Broker().start()
except OSError as error:
    print(error)
from fencepost.cli.main import main

try:
    main(["broker", "--listen", "127.0.0.1:0"])
except SystemExit as end:
    os._exit(end.code)  # the interpreter's own end uses what was taken away
"""


def test_client_and_commands_import_and_the_broker_says_what_it_lacks() -> None:
    program = [sys.executable, "-u", "-c", PROGRAM]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 1, done.stderr
    count, reported = done.stdout.splitlines()
    assert int(count) > 200
    reason = "the broker needs the files and locks of a POSIX system"
    assert reason in reported
    assert f"CRITICAL fencepost.broker: {reason}" in done.stderr
