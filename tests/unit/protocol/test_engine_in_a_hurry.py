"""The event loop of all clients does not wait for numba: it works in plain Python until that is loaded elsewhere."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fencepost.protocol.records.engine import VARIABLE

SCRIPT = """
import sys, threading
from fencepost.protocol.records.engine import is_compiled

loading, loaded = threading.Event(), threading.Event()
class Slow:
    def find_spec(self, name, path, target=None):
        if name == "numba":
            loading.set()
            assert loaded.wait(120)
        return None
sys.meta_path.insert(0, Slow())
answers = []
def hurried():
    is_compiled.never_wait_in(threading.get_ident())
    answers.append(is_compiled())
    assert loading.wait(120)
    answers.append(is_compiled())
thread = threading.Thread(target=hurried)
thread.start()
thread.join(120)
loaded.set()
answers.append(is_compiled())
print(answers)
"""


@pytest.mark.parametrize(("wanted", "answers"), [("1", [False, False, True])])
def test_a_thread_in_a_hurry_goes_on_in_plain_python(wanted: str, answers: list[bool]) -> None:
    pytest.importorskip("numba")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        env={"PATH": "", VARIABLE: wanted},
    )
    assert done.stdout.strip() == str(answers)


def test_the_thread_of_all_clients_is_in_a_hurry() -> None:
    """A batch of many records goes out while numba is being loaded."""
    pytest.importorskip("numba")
    script = SCRIPT.partition("answers = []")[0] + (
        "import fencepost\n"
        "with fencepost.Broker() as broker, fencepost.Producer(broker.bootstrap_servers) as producer:\n"
        "    producer.send('t', b'v').result(120)\n"
        "    sent = [producer.send('t', b'%d' % number) for number in range(500)]\n"
        "    assert loading.wait(120)\n"
        "    print(producer.partitions_for('t'))\n"
        "    loaded.set()\n"
        "    producer.flush()\n"
        "    print(len({each.result().offset for each in sent}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False, env={"PATH": ""}
    )
    assert done.stdout.split() == ["[0]", "500"], done.stderr
