"""The public names of the installed clients beside what each is in Fencepost.

A row has a name as its key: `KafkaProducer.send` for a method, `KafkaProducer.send(topic)` for a parameter of it, and
`KafkaAdminClient.*(timeout_ms)` for a parameter of several methods. Its text is `names here | note`. Names of a method
are looked up in `fencepost`, those of a parameter in the methods of its method's row. `-` stands for no name, and needs
a note with the reason and the replacement. A parameter whose method has one of the same name here needs no row.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiokafka
import aiokafka.admin
import confluent_kafka
import confluent_kafka.admin
import kafka
import kafka.admin
from kafka.consumer.fetcher import ConsumerRecord

import fencepost
from tests.golden.load import CLIENT_METHODS
from tests.support.peer_names import rows_aiokafka, rows_confluent, rows_java, rows_kafka_python

NOWHERE: Final = "-"
_PARAMETER: Final = re.compile(r"(?P<method>.+)\((?P<parameter>\w+)\)")
_DOCUMENTED: Final = re.compile(r":param [^:]*?(\w+):")


class Peer(NamedTuple):
    """Another client.

    Attributes:
        title: Its name and version.
        names: Its names, each with those of its parameters in parentheses.
        rows: What each is here.
    """

    title: str
    names: Callable[[], Iterable[str]]
    rows: Mapping[str, str]


class Row(NamedTuple):
    """A name of another client, the names here, and a note."""

    theirs: str
    here: tuple[str, ...]
    note: str


def _methods(*clients: type) -> Iterator[str]:
    for client in clients:
        for name in dir(client):
            value = getattr(client, name)
            if not name.startswith("_") and callable(value):
                yield f"{client.__name__}.{name}"
                yield from (f"{client.__name__}.{name}({each})" for each in _parameters(value))


def _parameters(function: Any) -> Iterator[str]:
    try:
        found = inspect.signature(function).parameters.values()
    except ValueError:  # of a function in C
        return
    first_is_self = inspect.isfunction(function)
    for parameter in list(found)[1 if first_is_self else 0 :]:
        if parameter.kind is not parameter.VAR_KEYWORD and parameter.name != "args":
            yield parameter.name


def aiokafkas() -> Iterator[str]:
    """The names of aiokafka."""
    yield from aiokafka.__all__
    yield from (f"admin.{name}" for name in aiokafka.admin.__all__)
    yield from (f"ConsumerRecord.{field.name}" for field in dataclasses.fields(aiokafka.ConsumerRecord))
    yield from _methods(aiokafka.AIOKafkaProducer, aiokafka.AIOKafkaConsumer, aiokafka.admin.AIOKafkaAdminClient)


def kafka_pythons() -> Iterator[str]:
    """The names of kafka-python."""
    yield from kafka.__all__
    yield from (f"admin.{name}" for name in kafka.admin.__all__)
    yield from (f"OffsetSpec.{member.name}" for member in kafka.OffsetSpec)
    yield from (f"ConsumerRecord.{name}" for name in ConsumerRecord._fields)
    yield from _methods(kafka.KafkaProducer, kafka.KafkaConsumer, kafka.KafkaAdminClient)


def confluents() -> Iterator[str]:
    """The methods of confluent-kafka. Its functions in C have their parameters in the file of types."""
    clients = (confluent_kafka.Message, confluent_kafka.Producer, confluent_kafka.Consumer)
    yield from _methods(*clients, confluent_kafka.admin.AdminClient)
    tree = ast.parse(Path(confluent_kafka.__path__[0], "cimpl.pyi").read_text())
    wanted = {"Producer": "Producer", "Consumer": "Consumer", "_AdminClientImpl": "AdminClient"}
    for owner in tree.body:
        if isinstance(owner, ast.ClassDef) and owner.name in wanted:
            for method in owner.body:
                if isinstance(method, ast.FunctionDef) and _is_open(wanted[owner.name], method.name):
                    arguments = [*method.args.args, *method.args.kwonlyargs][1:]
                    yield from (f"{wanted[owner.name]}.{method.name}({each.arg})" for each in arguments)
    for name, method in vars(confluent_kafka.admin.AdminClient).items():
        if not name.startswith("_") and inspect.isfunction(method):
            yield from (f"AdminClient.{name}({each})" for each in _DOCUMENTED.findall(method.__doc__ or ""))


def _is_open(owner: str, name: str) -> bool:
    """True for a method whose parameters are only in the file of types: it is in C, or passes everything on."""
    if name.startswith("_"):
        return False
    method = getattr(confluent_kafka.admin.AdminClient, name, None) if owner == "AdminClient" else None
    if not inspect.isfunction(method):
        return True
    kinds = {each.kind for each in inspect.signature(method).parameters.values()}
    return inspect.Parameter.VAR_POSITIONAL in kinds


def javas() -> Iterator[str]:
    """The methods of Java's clients, with their options."""
    yield from CLIENT_METHODS.read_text().splitlines()


PEERS: Final = (
    Peer(f"confluent-kafka {confluent_kafka.__version__}", confluents, rows_confluent.ROWS),
    Peer(f"aiokafka {aiokafka.__version__}", aiokafkas, rows_aiokafka.ROWS),
    Peer(f"kafka-python {kafka.__version__}", kafka_pythons, rows_kafka_python.ROWS),
    Peer("Java", javas, rows_java.ROWS),
)


def rows_of(peer: Peer) -> list[Row]:
    """Return a row for each name of a client, without those of parameters of a method that has no name here.

    Raises:
        LookupError: A name has no row, or a row names nothing of the client.
        ValueError: A row names nothing of Fencepost, gives no reason, or says what is so without it.
    """
    names = dict.fromkeys(peer.names())
    used: set[str] = set()
    found = [row for name in names if (row := _row_of(peer.rows, name, used)) is not None]
    if unused := peer.rows.keys() - used:
        raise LookupError(f"{peer.title} has no {sorted(unused)}")
    return found


def _row_of(rows: Mapping[str, str], name: str, used: set[str]) -> Row | None:
    parameter = _PARAMETER.fullmatch(name)
    if parameter is None:
        used.add(name)
        return _checked(name, _text(rows, name), exists)
    method, short = parameter["method"], parameter["parameter"]
    homes = _checked(method, _text(rows, method), exists).here
    if not homes:
        return None
    possible = {each for home in homes for each in _own_parameters(home)}
    general = f"{method.partition('.')[0]}.*({short})"
    given = name if name in rows else general if general in rows else None
    if given is None or (given == general and short in possible):
        if short in possible:
            return Row(name, (short,), "")
        raise LookupError(f"no row for {name}")
    used.add(given)
    if rows[given] == short and short in possible:
        raise ValueError(f"{given}: the row says nothing")
    return _checked(name, rows[given], possible.__contains__)


def _text(rows: Mapping[str, str], name: str) -> str:
    if name not in rows:
        raise LookupError(f"no row for {name}")
    return rows[name]


def _checked(name: str, text: str, known: Callable[[str], bool]) -> Row:
    left, _, note = text.partition(" | ")
    if left == NOWHERE:
        if not note:
            raise ValueError(f"{name}: no reason")
        return Row(name, (), note)
    here = tuple(left.split(", "))
    if unknown := [each for each in here if not known(each)]:
        raise ValueError(f"{name}: fencepost has no {unknown}")
    return Row(name, here, note)


def exists(name: str) -> bool:
    """True for a dotted name in fencepost, which may be a field of a class."""
    value: Any = fencepost
    for part in name.split("."):
        if not hasattr(value, part) and part not in getattr(value, "__dataclass_fields__", {}):
            return False
        value = getattr(value, part, None)
    return True


def _own_parameters(name: str) -> Iterable[str]:
    value: Any = fencepost
    for part in name.split("."):
        value = getattr(value, part)
    return inspect.signature(value).parameters.keys() - {"self"}
