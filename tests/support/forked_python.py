"""PySpark's Python processes, forked from one that has imported what they import.

A driver starts a dozen of them, and each spends more processor time on its imports than on its work: more than half of
what a short query costs. A `ForkedPython` is a server (this file as a program) and a launcher, `path`, which stands for
an interpreter in PYSPARK_PYTHON: it hands its arguments, environment and files to the server, whose fork runs the
module, and ends when that ends, with its status.

They are the server's children and not the driver's: whoever kills a driver's processes kills those, too, parents first,
for a parent ends its child when the launcher is gone. FENCEPOST_TEST_FORKED_FOR tells them who has started the
launcher. Not for another installation than that of the tests.
"""

from __future__ import annotations

import array
import contextlib
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fencepost_lab.torture.child_process import dies_with_starter

WORDS = 8
"""A request begins with its length: so many digits."""

# Only what an interpreter without site-packages has, so that it starts in 20 ms.
LAUNCHER = """#!{base} -SI
import array, json, os, socket, sys
if sys.argv[1:2] != ["-m"]:
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
environment = dict(os.environ, FENCEPOST_TEST_FORKED_FOR=str(os.getppid()))
request = json.dumps(dict(module=sys.argv[2], arguments=sys.argv[3:], cwd=os.getcwd(), environment=environment))
request = request.encode()
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
files = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))
server.sendmsg([b"%0{words}d" % len(request)], [files])
server.sendall(request)
os.close(0)
os.close(1)
os._exit(int(server.recv(16) or b"1"))
"""

IMPORTED = (
    "fencepost.spark.sink.writer",
    "fencepost.spark.source.batch",
    "fencepost.spark.source.reader",
    "pandas",
    "pyarrow",
    "pyspark.sql.conversion",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.worker",
)


class ForkedPython(NamedTuple):
    """`path` is for PYSPARK_PYTHON; `server` has all their processes among its children."""

    path: str
    server: int | None


@contextlib.contextmanager
def forked_python(environment: Mapping[str, str] | None = None) -> Iterator[ForkedPython]:
    """`environment`: of the server, for what is read when modules are imported. Where a process cannot be watched by a
    file descriptor (not Linux) it is just this interpreter."""
    if not hasattr(os, "pidfd_open"):
        yield ForkedPython(sys.executable, None)
        return
    with tempfile.TemporaryDirectory(prefix="fencepost-python-") as folder:
        address, launcher = os.path.join(folder, "socket"), Path(folder, "python")
        base = os.path.realpath(sys.executable)
        launcher.write_text(LAUNCHER.format(base=base, python=sys.executable, address=address, words=WORDS))
        launcher.chmod(0o755)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(address)
        listener.listen(128)
        # PySpark wants the hashes of strings to be the same in all workers. Others wait in line until it has imported.
        server = subprocess.Popen(
            [*dies_with_starter(), sys.executable, "-m", "tests.support.forked_python", str(listener.fileno())],
            pass_fds=[listener.fileno()],
            stdin=subprocess.DEVNULL,
            env={**(os.environ if environment is None else environment), "PYTHONHASHSEED": "0"},
            cwd=Path(__file__).parents[2],
        )
        listener.close()
        try:
            yield ForkedPython(str(launcher), server.pid)
        finally:
            server.terminate()
            server.wait()


def serve(listener: socket.socket) -> dict[str, Any]:
    """Returns only in a process that is to run what was asked for."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who wait for the others
    while True:
        asker, _ = listener.accept()
        with asker:
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                listener.close()
                return _take(asker)


def _take(asker: socket.socket) -> dict[str, Any]:
    """In a process of the asker's own: forks the one that runs, and waits for both."""
    with asker.makefile("rb") as unread:
        files = array.array("i")
        length, ancillary, _flags, _address = asker.recvmsg(WORDS, socket.CMSG_LEN(3 * files.itemsize))
        for _level, _kind, data in ancillary:
            files.frombytes(data)
        request: dict[str, Any] = json.loads(unread.read(int(length)))
    runs = os.fork()
    if runs == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        return request
    for file in files:
        os.close(file)
    ended = os.pidfd_open(runs)
    watched = select.poll()
    watched.register(asker, select.POLLIN)
    watched.register(ended, select.POLLIN)
    if ended not in dict(watched.poll()):  # the launcher was killed
        os.kill(runs, signal.SIGTERM)
        watched.unregister(asker)
        if not watched.poll(5_000):
            os.kill(runs, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(runs, 0)[1])
    with contextlib.suppress(OSError):
        asker.sendall(b"%d" % (status & 0xFF))
    os._exit(0)


def run(request: dict[str, Any]) -> None:
    """As `python -m module arguments` would."""
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["cwd"])
    first = [request["cwd"], *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    sys.path[:] = [*first, *(path for path in sys.path if path not in first)]
    sys.argv[1:] = request["arguments"]
    runpy.run_module(request["module"], run_name="__main__", alter_sys=True)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends Ctrl-C here, too; the starter ends the server
    for name in IMPORTED:
        with contextlib.suppress(ImportError):  # PySpark's own differ from release to release
            __import__(name)
    gc.freeze()  # PySpark collects garbage after every task; a fork would copy every page that its walk touches
    run(serve(socket.socket(fileno=int(sys.argv[1]))))


if __name__ == "__main__":
    main()
