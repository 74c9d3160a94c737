"""`fencepost demo`: exactly-once processing of real data while processes are killed."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from fencepost.cli.names import named, topic_named
from fencepost.cli.output import refuse, stopped_by_signals

__all__ = ["demo"]


Prefix = Annotated[str | None, typer.Option(callback=topic_named, help="Prefix of the names of topics.")]


def demo(
    seed: Annotated[int, typer.Option(help="Seed for the choice and the times of the kills.")] = 1,
    kills: Annotated[int, typer.Option(min=0, help="Kills of each: the driver, a Python worker, the broker.")] = 3,
    bootstrap_servers: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-servers",
            "-b",
            callback=named,
            metavar="HOST:PORT,...",
            help="Addresses of brokers.",
            show_default="the embedded broker, which is killed, too",
        ),
    ] = None,
    delivery: Annotated[
        str, typer.Option(help="exactly-once, or at-least-once to see the duplicates that the kills cause.")
    ] = "exactly-once",
    arrow: Annotated[
        bool, typer.Option("--arrow", help="Keep the records in Arrow; the JVM handles only offset ranges.")
    ] = False,
    flights: Annotated[int | None, typer.Option(min=1, help="Use only this many flights.")] = None,
    topic_prefix: Prefix = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep data, checkpoint, logs and topics afterwards.")] = False,
) -> None:
    """Move 336,776 real flights through Kafka and Spark while processes are killed, and check for exactly once.

    The flights are written to topic `flights`. A PySpark query computes the delay class of each and writes it to topic
    `delays`. Meanwhile driver, workers and broker are killed with kill -9 at random moments and restarted. At the end
    librdkafka reads `delays` (read_committed), and each flight must be there exactly once.

    Status: 0 exactly once; 1 not exactly once; 2 invalid arguments, or the run could not be completed.

    Example: fencepost demo --flights 20000 --kills 1
    """
    from rich.console import Console

    if delivery not in ("exactly-once", "at-least-once"):
        raise typer.BadParameter("must be exactly-once or at-least-once", param_hint="--delivery")
    console = Console()
    try:
        from fencepost.errors import KafkaError
        from fencepost.spark.java import JavaNotFound
        from fencepost_lab.demo.supervisor import DemoError, Options, run_demo
        from fencepost_lab.torture.child_process import StartupError
    except ImportError as error:
        refuse(f"{error}; the demo needs: pip install 'fencepost-lab[demo]'", status=2)
    options = Options(
        seed=seed,
        kills=kills,
        bootstrap_servers=bootstrap_servers,
        delivery=delivery,
        flights=flights,
        keep=keep,
        topic_prefix=topic_prefix or "",
        arrow=arrow,
    )
    try:
        # SIGTERM (from a closing terminal or a time limit) must end the child processes like Ctrl-C.
        with stopped_by_signals():
            try:
                verdict = run_demo(options, console)
            except KeyboardInterrupt:
                sys.stderr.write("stopped\n")
                raise
    except (DemoError, StartupError, ImportError, JavaNotFound, KafkaError) as error:
        refuse(f"the demo could not be carried through: {error}", status=2)
    from fencepost_lab.demo.report import show

    show(console, verdict, options)
    raise typer.Exit(0 if verdict.exactly_once else 1)
