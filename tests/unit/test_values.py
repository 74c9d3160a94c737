"""Values behave as data classes do, frozen or not: the same class, made by both, is the expectation."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar

import pytest

from fencepost import values
from fencepost.values import MutableValue, Value


class Point(Value):
    """Two numbers."""

    x: int
    y: int = 7

    def sum(self) -> int:
        return self.x + self.y


class Named(Value, kw_only=True):
    name: str
    settings: MappingProxyType[str, int] = MappingProxyType({})


class Other(Value):
    x: int
    y: int = 7


class Nothing(Value):
    pass


class Counted(MutableValue):
    COUNT: ClassVar[int] = 3
    x: int = 0
    y: int = 7


@dataclass(slots=True, kw_only=True)
class CountedModel:
    COUNT: ClassVar[int] = 3
    x: int = 0
    y: int = 7


class Placed(MutableValue, kw_only=False):
    x: int
    y: int = 7


@dataclass(slots=True)
class PlacedModel:
    x: int
    y: int = 7


@dataclass(frozen=True, slots=True)
class Model:
    x: int
    y: int = 7


def outcome(call: Callable[[], Any]) -> str:
    """Return the result of a call, or its error, as text without the difference of the class names."""
    try:
        found = repr(call())
    except (TypeError, AttributeError) as error:
        found = "it does not change" if isinstance(error, AttributeError) else str(error)
    return found.replace("CountedModel", "Counted").replace("PlacedModel", "Placed").replace("Model", "Point")


@pytest.mark.parametrize(
    "use",
    [
        lambda kind: kind(1),
        lambda kind: kind(1, y=2),
        lambda kind: kind(y=2, x=1),
        lambda kind: kind(),
        lambda kind: kind(1, 2, 3),
        lambda kind: kind(1, z=3),
        lambda kind: (kind(1) == kind(1, 7), kind(1) == kind(2), kind(1) == (1, 7), kind(1) != kind(2)),
        lambda kind: len({kind(1), kind(1, 7), kind(2)}),
        lambda kind: hash(kind([])),
        lambda kind: setattr(kind(1), "x", 2),
        lambda kind: delattr(kind(1), "x"),
        lambda kind: replace(kind(1), y=3),
        lambda kind: replace(kind(1), z=3),
        lambda kind: asdict(kind(1)),
        lambda kind: (is_dataclass(kind), is_dataclass(kind(1))),
        lambda kind: [(field.name, field.default == 7, field.kw_only) for field in fields(kind)],
        lambda kind: kind.__match_args__,
        lambda kind: hasattr(kind(1), "__dict__"),
        lambda kind: copy.copy(kind(1)),
        lambda kind: copy.deepcopy(kind(1)),
        lambda kind: pickle.loads(pickle.dumps(kind(1, 2))),
    ],
)
def test_a_value_does_what_a_frozen_data_class_does(use: Callable[[Any], Any]) -> None:
    assert outcome(lambda: use(Point)) == outcome(lambda: use(Model))


def _assigned(kind: Any, name: str) -> Any:
    value = kind(x=1)
    setattr(value, name, 5)
    return value


@pytest.mark.parametrize(
    "use",
    [
        lambda kind: kind(),
        lambda kind: kind(x=1, y=2),
        lambda kind: kind(1),
        lambda kind: kind(z=3),
        lambda kind: (kind(x=1) == kind(x=1, y=7), kind(x=1) == kind(x=2), kind() == (0, 7), kind() != kind(x=1)),
        lambda kind: hash(kind()),
        lambda kind: _assigned(kind, "x"),
        lambda kind: _assigned(kind, "z"),
        lambda kind: (kind.COUNT, kind().COUNT),
        lambda kind: replace(kind(x=1), y=3),
        lambda kind: replace(kind(x=1), z=3),
        lambda kind: asdict(kind(x=1)),
        lambda kind: [(field.name, field.default, field.kw_only) for field in fields(kind)],
        lambda kind: kind.__match_args__,
        lambda kind: hasattr(kind(), "__dict__"),
        lambda kind: copy.copy(kind(x=1)),
        lambda kind: copy.deepcopy(kind(x=1)),
        lambda kind: pickle.loads(pickle.dumps(kind(x=1, y=2))),
    ],
)
def test_a_mutable_value_does_what_a_data_class_does(use: Callable[[Any], Any]) -> None:
    assert outcome(lambda: use(Counted)) == outcome(lambda: use(CountedModel))


@pytest.mark.parametrize(
    "use",
    [
        lambda kind: kind(1),
        lambda kind: kind(1, 2),
        lambda kind: kind(y=2, x=1),
        lambda kind: kind(),
        lambda kind: kind(1, 2, 3),
        lambda kind: _assigned(kind, "y"),
        lambda kind: replace(kind(1), y=3),
        lambda kind: [(field.name, field.kw_only) for field in fields(kind)],
        lambda kind: kind.__match_args__,
        lambda kind: pickle.loads(pickle.dumps(kind(1, 2))),
    ],
)
def test_a_mutable_value_can_have_positional_fields(use: Callable[[Any], Any]) -> None:
    assert outcome(lambda: use(Placed)) == outcome(lambda: use(PlacedModel))


def test_there_are_no_other_attributes() -> None:
    with pytest.raises(AttributeError):
        Point(1).z = 2


def test_values_of_two_classes_are_not_equal() -> None:
    assert Point(1) != Other(1)


def test_methods_and_fields_by_name_only() -> None:
    assert Point(1, 2).sum() == 3
    assert Named(name="a") == Named(name="a", settings=MappingProxyType({}))
    assert replace(Named(name="a"), name="b") == Named(name="b")
    with pytest.raises(TypeError, match="positional"):
        Named("a")  # type: ignore[call-arg]


def test_a_value_without_fields() -> None:
    assert Nothing() == Nothing()
    assert len({Nothing(), Nothing()}) == 1
    assert repr(Nothing()) == "Nothing()"


def test_what_would_be_left_out_is_refused() -> None:
    with pytest.raises(TypeError, match="Further: a value takes no fields from another class"):
        type("Further", (Point,), {})
    with pytest.raises(TypeError, match="calls no __post_init__"):
        type("Checked", (Value,), {"__post_init__": print})


def test_what_is_no_plain_field_is_refused() -> None:
    """A data class would not take it for a default."""
    with pytest.raises(TypeError, match=r"Listing\.found: a value takes no field\(\)"):

        class Listing(Value):
            found: list[int] = field(default_factory=list)


@pytest.mark.parametrize("annotation", [ClassVar[int], "ClassVar[int]", "typing.ClassVar[int]"])
def test_a_class_variable_is_no_field(annotation: object) -> None:
    body = {"__annotations__": {"count": annotation, "x": "int"}, "count": 3}
    kind = type(Value).__call__(type(Value), "Evaluated", (Value,), body)
    assert kind(1) == kind(x=1)
    assert kind(1).count == kind.count == 3
    assert [each.name for each in fields(kind)] == ["x"]


@pytest.mark.parametrize("changed", [values.replace, getattr(copy, "replace", Value.__replace__)])
def test_replace_works_as_dataclasses_does(changed: Callable[..., Any]) -> None:
    """`copy.replace` (Python 3.13) asks the object; before, there is only what it would ask."""
    assert changed(Point(1), y=3) == replace(Point(1), y=3) == Point(1, 3)
    assert changed(Named(name="a"), name="b") == Named(name="b")
    assert changed(Nothing()) == Nothing()
    with pytest.raises(TypeError, match="z"):
        changed(Point(1), z=3)
