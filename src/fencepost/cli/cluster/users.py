"""`fencepost users`: manage SCRAM passwords (KIP-554)."""

from __future__ import annotations

import os
import sys
from enum import Enum
from getpass import getpass
from pathlib import Path
from typing import Annotated, Final

import typer

from fencepost.arguments import is_utf8
from fencepost.cli.cluster_settings import CommandConfig, Servers, connected
from fencepost.cli.names import named
from fencepost.cli.output import (
    Json,
    Yes,
    changes_reported,
    command_group,
    confirmed,
    failures_reported,
    print_json,
    print_table,
    refuse,
    report_done,
)
from fencepost.cli.printable import printable
from fencepost.cli.progress import paused
from fencepost.client.admin.scram import ScramDeletion, ScramMechanism, ScramUpsertion
from fencepost.protocol.scram import FEWEST_ITERATIONS, MOST_BROKER_ITERATIONS
from fencepost.small_files import MOST_BYTES, read_small

__all__ = ["users"]

users = command_group("List SCRAM users; set and delete their passwords.")


class Mechanism(Enum):
    """A SCRAM mechanism by its SASL name."""

    SHA_256 = "SCRAM-SHA-256"
    SHA_512 = "SCRAM-SHA-512"


_SCRAM: Final = {
    Mechanism.SHA_256: ScramMechanism.SCRAM_SHA_256,
    Mechanism.SHA_512: ScramMechanism.SCRAM_SHA_512,
}

User = Annotated[str, typer.Argument(callback=named, help="The user's name.")]
MechanismOption = Annotated[Mechanism, typer.Option("--mechanism", help="Mechanism; each has its own password.")]


@users.command("list")
def list_(
    bootstrap_servers: Servers = None,
    command_config: CommandConfig = None,
    as_json: Json = False,
) -> None:
    """List users that have a password, with mechanism and number of iterations.

    Example: fencepost users list
    """
    with connected(bootstrap_servers, command_config) as admin:
        credentials = admin.describe_user_scram_credentials()
    if as_json:
        print_json(
            [
                {
                    "user": credential.user,
                    "mechanism": credential.mechanism.sasl_name,
                    "iterations": credential.iterations,
                }
                for credential in credentials
            ]
        )
        return
    rows = [(credential.user, credential.mechanism.sasl_name, str(credential.iterations)) for credential in credentials]
    print_table([("USER", "MECHANISM", "ITERATIONS"), *rows])


@users.command("set-password")
def set_password(
    user: User,
    mechanism: MechanismOption = Mechanism.SHA_512,
    iterations: Annotated[
        int, typer.Option(min=FEWEST_ITERATIONS, max=MOST_BROKER_ITERATIONS, help="Iterations, 4096 to 16384.")
    ] = FEWEST_ITERATIONS,
    password_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File with the password in its first line; - for stdin.", show_default="ask"),
    ] = None,
    bootstrap_servers: Servers = None,
    command_config: CommandConfig = None,
    as_json: Json = False,
) -> None:
    """Set or replace a user's password. It is salted locally and never sent to the brokers.

    Example: fencepost users set-password alice --password-file alice.txt
    """
    with failures_reported():
        password = None if password_file is None else _checked(_first_line(password_file))
    with connected(bootstrap_servers, command_config) as admin, changes_reported() as changes:
        if password is None:  # ask only if there is a broker to set it at
            password = _checked(_asked(user))
        with changes.change(f"{user} has the new password"):
            admin.alter_user_scram_credentials([ScramUpsertion(user, _SCRAM[mechanism], password, iterations)])
    words = f"{user} has a new password for {mechanism.value}"
    report_done(words, "set", as_json=as_json, user=user, mechanism=mechanism.value)


def _asked(user: str) -> str:
    """Ask twice for the password, which is never an option's value because the process list shows these.

    Exits with status 1 without a terminal, or if its input ends.
    """
    if not _has_terminal():
        refuse("there is no terminal to ask for the password; --password-file - reads it from standard input")
    # Not typer's prompt, which turns Ctrl-C into another status.
    with paused():
        try:
            while (password := getpass(f"Password for {printable(user)}: ")) != getpass("The same again: "):
                sys.stderr.write("the two differ\n")
        except EOFError:
            sys.stderr.write("\n")
            refuse("no password was given")
    return password


def _has_terminal() -> bool:
    """Return True if `getpass` can hide its input: it opens the process's terminal, or else takes standard input."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return sys.stdin is not None and sys.stdin.isatty()
    return True


def _checked(password: str) -> str:
    """Return the password. Exits with status 1 if it is empty or not UTF-8."""
    if not password:
        refuse("the password is empty")
    if not is_utf8(password):
        refuse("the password is not UTF-8")
    return password


def _first_line(file: Path) -> str:
    """Return the first line of a file. Exits with status 1 if it is not text or is too long. Raises OSError."""
    try:
        if str(file) != "-":
            text = read_small(file)
        elif sys.stdin is None:
            refuse("standard input is closed")
        else:
            with paused():
                text = sys.stdin.readline(MOST_BYTES)
            if len(text) == MOST_BYTES:
                refuse(f"standard input: its first line has more than {MOST_BYTES} characters")
    except ValueError as error:
        refuse(f"{file}: {error}")
    return text.split("\n", 1)[0].rstrip("\r")


@users.command()
def delete(
    user: User,
    mechanism: Annotated[
        Mechanism | None,
        typer.Option("--mechanism", help="Only this mechanism's password.", show_default="all of the user"),
    ] = None,
    bootstrap_servers: Servers = None,
    command_config: CommandConfig = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete a user's passwords, for all mechanisms. Open connections stay authenticated.

    Users in the settings of a broker's listener are not deleted.

    Example: fencepost users delete alice
    """
    with connected(bootstrap_servers, command_config) as admin, changes_reported() as changes:
        if mechanism is not None:
            doomed = [_SCRAM[mechanism]]
        else:
            doomed = [found.mechanism for found in admin.describe_user_scram_credentials([user])]
        if not doomed:
            refuse(f"delete user {user!r}: no password is stored for that name, by any mechanism")
        confirmed(f"Delete {user}'s password for {' and '.join(each.sasl_name for each in doomed)}?", yes=yes)
        for each in doomed:  # a request may name each user only once
            with changes.change(f"{user}'s password for {each.sasl_name} was deleted"):
                admin.alter_user_scram_credentials([ScramDeletion(user, each)])
            words = f"{user} has no password for {each.sasl_name} any more"
            report_done(words, "deleted", as_json=as_json, user=user, mechanism=each.sasl_name)
