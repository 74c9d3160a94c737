"""Commands and groups of typer whose help looks like that of all others (`fencepost.cli.help`)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any, Final, cast, get_args

import typer
from typer.core import TyperCommand, TyperGroup

from fencepost.cli.help import (
    Help,
    HelpRow,
    help_text,
    no_such_option,
    notes,
    number_words,
    range_words,
    terminal_width,
    unexpected_argument,
    usage_text,
)

__all__ = ["USAGE_ERROR", "HelpedApp", "HelpedCommand", "HelpedGroup", "in_words"]

USAGE_ERROR: Final = cast("type[Exception]", typer.BadParameter.__base__)
"""UsageError of typer, or of click in older releases."""
_ABOUT_TYPES: Final = re.compile(
    r"^Input should |is not a valid (?:integer|float|int)|is not in the range|is not one of '"
)
_MISSING: Final = re.compile(r"Option '([^']+)' requires (?:an argument|\d+ arguments)\.")
_EXTRA: Final = re.compile(r"Got unexpected extra argument(?:\(?s?\)?)? \((.*)\)")


LARGEST: Final = 2**63 - 1
"""The largest whole number of an option. Kafka's numbers have at most 64 bits."""

_WORDS: Final = {"int": "NUMBER", "integer": "NUMBER", "float": "NUMBER", "Path": "FILE", "path": "FILE"}
"""Words for the value of an option that has none, by the type's name in any release of typer."""


class _Helped:
    """A command whose help is that of `fencepost.cli.help`."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help as wide as the terminal."""
        formatter.write(help_text(_help_of(self, ctx), terminal_width()))

    def get_usage(self, ctx: Any) -> str:
        """Return the line that stands above an error."""
        return usage_text(_help_of(self, ctx).usage, terminal_width()).rstrip()


@contextmanager
def _errors_of(ctx: Any) -> Iterator[None]:
    """Give errors of the parser the command, which is shown above them, and the words of all commands."""
    try:
        yield
    except USAGE_ERROR as error:
        usage_error: Any = error
        usage_error.ctx = ctx if usage_error.ctx is None else usage_error.ctx
        in_words(usage_error)
        raise


class HelpedCommand(_Helped, TyperCommand):
    """A command without subcommands."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments.

        Raises BadParameter also for a repeated option, a path without a name, and a number above LARGEST.
        """
        if ctx.resilient_parsing:  # shell completion
            return super().parse_args(ctx, args)
        with _errors_of(ctx):
            return self._parsed(ctx, args)

    def _parsed(self, ctx: Any, args: list[str]) -> list[str]:
        parameters: list[Any] = self.get_params(ctx)
        seen: set[str] = set()
        raw, _, in_order = self.make_parser(ctx).parse_args(args=args.copy())
        given: Any
        for given in in_order:  # an option with one value would have the last one
            if given.name in seen and not given.multiple and not given.is_flag:
                raise typer.BadParameter("is given twice, and may be given once", ctx=ctx, param=given)
            seen.add(given.name)
        for parameter in parameters:
            values = raw.get(parameter.name)
            is_path = _type_name(_annotation(parameter)).lower() == "path"
            if is_path and "" in (values if isinstance(values, list | tuple) else [values]):
                raise typer.BadParameter("it must not be empty", ctx=ctx, param=parameter)  # Path("") is "."
        rest = super().parse_args(ctx, args)
        for parameter in parameters:
            value = ctx.params.get(parameter.name)
            numbers = value if isinstance(value, list | tuple) else [value]
            if any(isinstance(each, int) and abs(each) > LARGEST for each in numbers):
                words = _value_words(parameter)
                raise typer.BadParameter(f"must be {words}, and at most {LARGEST}", ctx=ctx, param=parameter)
        return rest


class HelpedGroup(_Helped, TyperGroup):
    """A command with subcommands."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments before the subcommand."""
        with _errors_of(ctx):
            return super().parse_args(ctx, args)


class HelpedApp(typer.Typer):
    """A typer app whose commands have this help."""

    def command(self, name: str | None = None, **given: Any) -> Any:
        """Register a command. The arguments are those of typer."""
        return super().command(name, **{"cls": HelpedCommand, **given})


def in_words(error: Any) -> None:
    """Replace the texts of typer, click and pydantic about a value by what the help says, in all their releases."""
    error.message = error.message.removeprefix("Value error, ")
    missing = _MISSING.fullmatch(error.message)
    if missing is not None:
        error.message = f"{missing[1]}: a value is missing"
    parameters = [] if error.ctx is None else error.ctx.command.get_params(error.ctx)
    options = [name for each in parameters for name in each.opts if name.startswith("-")]
    found = _EXTRA.match(error.message)
    if found is not None:
        error.message = unexpected_argument(found[1], options)
    if getattr(error, "option_name", None) is not None and getattr(error, "possibilities", None) is not None:
        error.message, error.possibilities = no_such_option(error.option_name, options), None
    parameter = getattr(error, "param", None)
    if parameter is None:
        if getattr(error, "param_hint", "") is None:  # about several parameters
            vars(error)["format_message"] = lambda: error.message
        return
    if error.param_hint is None:
        named = parameter.param_type_name == "argument"
        error.param_hint = _argument_word(parameter) if named else max(parameter.opts, key=len)
    if _ABOUT_TYPES.search(error.message):
        error.message = f"must be {_value_words(parameter)}"


def _value_words(parameter: Any) -> str:
    kind = _annotation(parameter)
    choices = _choices(parameter, kind)
    if choices:
        return " or ".join(choices)
    name = _type_name(kind)
    words = {"int": "a whole number", "float": "a number"}.get(name[:3] if name.startswith("int") else name, "a value")
    lowest, highest = _limits(parameter)
    limits = range_words(lowest, highest)
    if highest is not None and limits.endswith("or more"):
        limits += f", and at most {highest}"
    return words if not limits else f"{words} from {limits}" if " to " in limits else f"{words}, {limits}"


def _help_of(command: Any, context: Any) -> Help:
    shown = [each for each in command.get_params(context) if not getattr(each, "hidden", False)]
    arguments = [each for each in shown if each.param_type_name == "argument"]
    pieces = [context.command_path, "[OPTIONS]"]
    pieces += [word if each.required else f"[{word}]" for each in arguments for word in [_argument_word(each)]]
    commands = getattr(command, "commands", {})
    if commands:
        pieces.append("COMMAND [ARGS]...")
    return Help(
        " ".join(pieces),
        command.help or "",
        [HelpRow(_argument_word(each), _description(each)) for each in arguments],
        [HelpRow(_option_names(each), _description(each)) for each in shown if each not in arguments],
        [HelpRow(name, each.get_short_help_str(limit=500)) for name, each in commands.items() if not each.hidden],
    )


def _argument_word(parameter: Any) -> str:
    several = parameter.nargs == -1
    if parameter.metavar is not None:
        word = str(parameter.metavar)
    else:
        word = str(parameter.name).upper().replace("_", "-")
        word = word.removesuffix("S") if several else word
    return f"{word}..." if several and not word.endswith("...") else word


def _option_names(parameter: Any) -> str:
    names = sorted(parameter.opts, key=len)
    if parameter.secondary_opts:
        return f"{', '.join(names)} / {', '.join(parameter.secondary_opts)}"
    word = "" if getattr(parameter, "is_flag", False) else _option_word(parameter)
    return f"{', '.join(names)} {word}".rstrip()


def _option_word(parameter: Any) -> str:
    if parameter.metavar is not None:
        return str(parameter.metavar)
    kind = _annotation(parameter)
    choices = _choices(parameter, kind)
    if choices:
        return "|".join(choices)
    longest = max(parameter.opts, key=len)
    return str(_WORDS.get(_type_name(kind).removesuffix(" range"), longest.lstrip("-").rpartition("-")[2].upper()))


def _annotation(parameter: Any) -> Any:
    """Return the Python type of a value, or in older releases of typer the name of its click type."""
    descriptor = getattr(parameter, "type_descriptor", None)
    found = getattr(descriptor, "annotation", None) or getattr(getattr(parameter, "type", None), "name", "")
    return next(iter(get_args(found)), found)


def _type_name(kind: Any) -> str:
    """Return the name of a result of `_annotation`."""
    return kind if isinstance(kind, str) else getattr(kind, "__name__", "")


def _choices(parameter: Any, kind: Any) -> list[str]:
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [str(each.value) for each in kind]
    found = getattr(getattr(parameter, "type", None), "choices", ())
    return [str(each.value if isinstance(each, Enum) else each) for each in found]


def _description(parameter: Any) -> str:
    lowest, highest = _limits(parameter)
    words = notes(
        _default(parameter),
        range_words(lowest, highest),
        "required" if parameter.required else "",
        _repeated(parameter),
    )
    return f"{parameter.help or ''}{words}".strip()


def _limits(parameter: Any) -> tuple[float | None, float | None]:
    """Return the least and the largest value. They are the parameter's, or in older releases of typer the type's."""
    holder = parameter if hasattr(parameter, "min") else getattr(parameter, "type", None)
    return getattr(holder, "min", None), getattr(holder, "max", None)


def _repeated(parameter: Any) -> str:
    return "may be repeated" if getattr(parameter, "multiple", False) else ""


def _default(parameter: Any) -> str:
    shown, value = parameter.show_default, parameter.default
    if isinstance(shown, str):
        return f"default: {shown}"
    if not shown or value is None or value == "" or callable(value) or isinstance(value, list | tuple):
        return ""
    if isinstance(value, bool):
        if not parameter.secondary_opts:
            return ""
        return f"default: {(parameter.opts if value else parameter.secondary_opts)[0]}"
    return f"default: {value.value if isinstance(value, Enum) else number_words(value)}"
