"""The question for a password, on a terminal and without one."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import suppress

import pytest

import fencepost

PROGRAM = [sys.executable, "-c", "from fencepost.cli.main import main; main()", "users", "set-password", "bob"]
LIMIT_S = 120


class Terminal:
    """The command on a terminal of its own, which is also its controlling terminal."""

    def __init__(self, servers: str) -> None:
        self._master, slave = os.openpty()
        self._shown = ""
        self.process = subprocess.Popen(
            [*PROGRAM, "-b", servers],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - one call of the system
        )
        os.close(slave)

    def answer(self, question: str, keys: str) -> None:
        """Wait for the question, and press the keys."""
        while question not in self._shown:
            self._shown += os.read(self._master, 1000).decode()
        self._shown = self._shown.partition(question)[2]
        os.write(self._master, keys.encode())

    def ended(self) -> tuple[int, str]:
        """The status, and the text after the last question."""
        with suppress(OSError):  # Linux, if the other side is closed
            while piece := os.read(self._master, 1000):
                self._shown += piece.decode()
        return self.process.wait(LIMIT_S), self._shown

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._master)


@pytest.fixture
def terminal(fencepost_broker: fencepost.Broker) -> Iterator[Terminal]:
    session = Terminal(fencepost_broker.bootstrap_servers)
    yield session
    session.close()


def users(broker: fencepost.Broker) -> list[str]:
    with fencepost.Admin(broker.bootstrap_servers) as admin:
        return [credential.user for credential in admin.describe_user_scram_credentials()]


def test_the_password_is_asked_for_until_it_is_the_same_twice(
    fencepost_broker: fencepost.Broker, terminal: Terminal
) -> None:
    terminal.answer("Password for bob: ", "secret\n")
    terminal.answer("The same again: ", "secrte\n")
    terminal.answer("the two differ", "")
    terminal.answer("Password for bob: ", "secret\n")
    terminal.answer("The same again: ", "secret\n")
    status, shown = terminal.ended()
    assert (status, "bob has a new password" in shown, "secret" in shown) == (0, True, False)
    assert users(fencepost_broker) == ["bob"]


@pytest.mark.parametrize(
    ("keys", "status", "reason"), [("\x03", 130, ""), ("\x04", 1, "fencepost: no password was given")]
)
def test_nothing_is_set_if_the_question_is_not_answered(
    fencepost_broker: fencepost.Broker, terminal: Terminal, keys: str, status: int, reason: str
) -> None:
    terminal.answer("Password for bob: ", keys)
    ended, shown = terminal.ended()
    assert (ended, reason in shown, "Traceback" in shown) == (status, True, False), shown
    assert users(fencepost_broker) == []


@pytest.mark.parametrize("redirection", ["<&-", "</dev/null"])
def test_without_a_terminal_the_reason_is_one_line(fencepost_broker: fencepost.Broker, redirection: str) -> None:
    words = ["sh", "-c", f'exec "$0" "$@" {redirection}', *PROGRAM, "-b", fencepost_broker.bootstrap_servers]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S, start_new_session=True, check=False)
    expected = (
        "fencepost: there is no terminal to ask for the password; --password-file - reads it from standard input\n"
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", expected)
    assert users(fencepost_broker) == []
