"""Calls of a client per transaction: `python -m bench.client_calls`.

A producer begins a transaction, sends one record and commits, with a broker in a process of its own. Printed are the
calls of Python and builtin functions by thread, and the turns of the sender, per transaction.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections import Counter
from types import FrameType
from typing import Any

import fencepost
from bench.common import own_broker
from fencepost.client.producer.sender import Sender

WARM_UP = 200
TURN = Sender._run.__code__


class Calls:
    """Counts the calls of all threads that begin while `threading.setprofile` is set."""

    def __init__(self) -> None:
        self.is_counting = False
        self.by_thread: Counter[str] = Counter()
        self.turns = 0

    def note(self, frame: FrameType, event: str, _about: Any) -> None:
        """Count an event of the interpreter."""
        if self.is_counting and event in {"call", "c_call"}:
            self.by_thread[threading.current_thread().name] += 1
            self.turns += event == "call" and frame.f_code is TURN


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transactions", type=int, default=500)
    count = parser.parse_args().transactions
    calls = Calls()
    threading.setprofile(calls.note)
    with own_broker() as broker, fencepost.Producer(broker.servers, transactional_id="calls") as producer:
        producer.init_transactions()
        for number in range(WARM_UP + count):
            if number == WARM_UP:
                sys.setprofile(calls.note)
                calls.is_counting = True
            producer.begin_transaction()
            producer.send("calls", b"x" * 100)
            producer.commit_transaction()
        calls.is_counting = False
        sys.setprofile(None)
    for name, total in calls.by_thread.items():
        print(f"{name}: {total / count:.0f} calls")
    print(f"turns of the sender: {calls.turns / count:.1f}")


if __name__ == "__main__":
    main()
