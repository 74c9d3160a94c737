"""Output of the demo's verdict."""

from __future__ import annotations

from rich.console import Console

from fencepost_lab.demo.supervisor import Options
from fencepost_lab.demo.verdict import DemoVerdict

__all__ = ["show"]

MISMATCHES_SHOWN = 5


def show(console: Console, verdict: DemoVerdict, options: Options) -> None:
    """Print the findings, and the verdict in the last line."""

    def say(text: str, style: str | None = None) -> None:
        console.print(text, style=style, soft_wrap=True, highlight=False, markup=False)

    say("")
    say("verdict, read by librdkafka with isolation.level=read_committed:")
    say(f"  {verdict.records:>9,} records in {options.topic_prefix}delays")
    say(f"  {verdict.flights:>9,} distinct flights")
    say(f"  {verdict.duplicates:>9,} duplicates")
    say(f"  {verdict.missing:>9,} missing")
    if verdict.unknown:
        say(f"  {verdict.unknown:>9,} that were never in the input")
    say(f"  {len(verdict.mismatches):>9,} of the counts per carrier and delay class differ from pandas'")
    for (carrier, name), (found, wanted) in list(verdict.mismatches.items())[:MISMATCHES_SHOWN]:
        say(f"            {carrier} {name}: {found:,} found, {wanted:,} expected")
    say(f"  {len(verdict.in_doubt):>9,} transactions in doubt")
    if verdict.exactly_once:
        say("every flight exactly once: no record too many, none too few", "bold green")
    else:
        say("NOT exactly once", "bold red")
        if options.delivery == "at-least-once":
            say("(that is what at-least-once means: run with --delivery exactly-once)")
