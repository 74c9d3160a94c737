"""The functions that read and write messages, as text: one of each for every layout that a class has on the wire.

What flexible versions mostly hold is read in place: a length of one byte, together with the fields of fixed size before
it, and the string, byte string or array that is so short. Everything else is a call of `fencepost.protocol.wire`. No
slice is held against the end in place: one that comes out short is noticed at the byte behind it, which every flexible
structure has. Nor is a count of one byte: an array grows with what was read. The loops count down because most arrays
are short: a range and its iterator cost as much as an element.
"""

from __future__ import annotations

import itertools
import re
import struct

from tools.message_schemas import FIXED, UnionClass, WireClass, WireField, least_of_value

LINE_LENGTH = 120
PREFIX = "B"  # a length or count of one byte, behind the fields of fixed size


class Functions:
    """The source of the functions that read and write the layouts of one module."""

    def __init__(self, unions: dict[str, UnionClass]) -> None:
        self._unions = unions
        self._names: dict[WireClass, str] = {}
        self.source: list[str] = []
        self.imports: set[str] = set()
        self.structs: set[str] = set()

    def add(self, layout: WireClass, version: int, in_array: bool = False) -> str:
        """Make sure that the layout has its functions; returns what they are called behind read_ and write_."""
        if layout not in self._names:
            for field in layout.fields:
                if field.nested is not None:
                    self.add(field.nested, version, field.is_array)
            name = f"{snake(layout.name)}_v{version}"
            if name in self._names.values():
                raise ValueError(f"two layouts of {name}")
            self._names[layout] = name
            self._write(self._writer(layout, name))
        name = self._names[layout]
        self._write(self._array_reader(layout, name) if in_array else self._reader(layout, name))
        return name

    def _write(self, function: str) -> None:
        if function not in self.source:
            self.source.append(function)

    def _use(self, name: str) -> str:
        self.imports.add(name)
        return name

    def _struct(self, codes: str) -> str:
        name = struct_name(codes)
        self.structs.add(f'{name} = Struct(">{codes}")')
        return name

    def _elements_call(self, field: WireField, flexible: bool) -> str:
        """The name of the function that reads the elements of an array."""
        if field.nested is not None:
            return f"_read_many_{self._names[field.nested]}"
        return self._use(f"read_{'compact_' if flexible else ''}{field.kind}s")

    def _value_call(self, verb: str, field: WireField, flexible: bool) -> str:
        """The name of the function that reads or writes the field, or writes one element of it."""
        if field.nested is not None:
            return f"_{verb}_{self._names[field.nested]}"
        if field.kind == "uuid":
            return self._use(f"{verb}_uuid")
        nullable = "nullable_" if field.nullable and not field.is_array else ""
        return self._use(f"{verb}_{'compact_' if flexible else ''}{nullable}{field.kind}")

    def _field_call(self, verb: str, field: WireField, flexible: bool) -> tuple[str, list[str]]:
        """The function that reads or writes the field, and its arguments behind the common ones."""
        form = ("compact_" if flexible else "") + ("nullable_" if field.nullable else "")
        if field.is_array and field.kind in FIXED:
            return self._use(f"{verb}_{form}{field.kind}s"), []
        if field.is_array and verb == "read":
            least = str(least_of_value(field, flexible))
            return self._use(f"read_{form}array"), [self._elements_call(field, flexible), least]
        if field.is_array:
            return self._use(f"write_{form}array"), [self._value_call(verb, field, flexible)]
        if field.nested is not None and field.nullable and field.tag is None:
            return self._use(f"{verb}_nullable"), [self._value_call(verb, field, flexible)]
        return self._value_call(verb, field, flexible), []

    def _reader(self, layout: WireClass, name: str) -> str:
        lines = [f"def _read_{name}(data: bytes, at: int) -> tuple[{layout.name}, int]:"]
        lines += [f"    {line}" for line in self._read_lines(layout)]
        return "\n".join(map(folded, [*lines, "    return value, at"])) + "\n"

    def _array_reader(self, layout: WireClass, name: str) -> str:
        lines = [f"def _read_many_{name}(data: bytes, at: int, count: int) -> tuple[list[{layout.name}], int]:"]
        lines += ["    values = []", "    while count:", "        count -= 1"]
        lines += [f"        {line}" for line in self._read_lines(layout)]
        return "\n".join(map(folded, [*lines, "        values.append(value)", "    return values, at"])) + "\n"

    def _read_lines(self, layout: WireClass) -> list[str]:
        """Return the lines that build `value` from the bytes at `at`, and leave `at` behind them."""
        lines = [f"value = {self._use('new')}({layout.name})"]
        run: list[WireField] = []
        for field in layout.plain:
            if field.fixed:
                run.append(field)
                continue
            in_place = layout.flexible and is_short(field)
            lines += self._read_run(run, "size" if in_place else "")
            lines += self._read_in_place(field, run) if in_place else [self._read_by_call(field, run, layout.flexible)]
            run = []
        skips = layout.flexible and not layout.tagged
        lines += self._read_run(run, "tags" if skips and run else "")
        present = {field.name for field in layout.plain}
        lines += [
            f"value.{field.name} = {field.default}"
            for field in self._unions[layout.name].fields.values()
            if field.name not in present
        ]
        if skips:
            skip = f"{self._use('skip_tagged_fields')}(data, {ahead(run)})"
            return [*lines, f"at = {ahead(run, 1)} if {'tags' if run else 'data[at]'} == 0 else {skip}"]
        if run:
            lines.append(f"at += {bytes_of(run)}")
        return [*lines, *(self._read_tags(layout) if layout.tagged else [])]

    def _read_run(self, run: list[WireField], prefix: str) -> list[str]:
        """The neighbours of fixed size, with the byte behind them under the name `prefix` where it has one."""
        targets = [f"value.{field.name}" for field in run] + ([prefix] if prefix else [])
        if not run:
            return [f"{prefix} = data[at]"] if prefix else []
        left = f"({targets[0]},)" if len(targets) == 1 else ", ".join(targets)
        return [f"{left} = {self._struct(codes_of(run) + (PREFIX if prefix else ''))}.unpack_from(data, at)"]

    def _read_by_call(self, field: WireField, run: list[WireField], flexible: bool) -> str:
        if field.kind == "uuid":
            end = ahead(run, 16)
            return f"value.{field.name}, at = {self._use('uuid_of')}(data[{ahead(run)} : {end}]), {end}"
        function, arguments = self._field_call("read", field, flexible)
        return f"value.{field.name}, at = {function}({', '.join(['data', ahead(run), *arguments])})"

    def _read_in_place(self, field: WireField, run: list[WireField]) -> list[str]:
        """A field whose length is in `size`: what is short in place, anything else by a call."""
        name, first = field.name, ahead(run, 1)
        if field.is_array:
            integers = field.kind == "int32"
            if integers:
                values = f"{self._use('UNPACK_INT32S')}[size](data, {first}), {ahead(run, -3)} + 4 * size"
            else:
                values = f"{self._elements_call(field, flexible=True)}(data, {first}, size - 1)"
            lines = ["if 1 < size < 0x80:", f"    value.{name}, at = {values}"]
            lines += ["elif size == 1:", f"    value.{name}, at = {'()' if integers else '[]'}, {first}"]
        else:
            decoded = ".decode()" if field.kind == "string" else ""
            lines = ["if 0 < size < 0x80:", f"    end = {ahead(run)} + size"]
            lines += [f"    value.{name}, at = data[{first} : end]{decoded}, end"]
        if field.nullable:
            lines += ["elif size == 0:", f"    value.{name}, at = None, {first}"]
        return [*lines, "else:", f"    {self._read_by_call(field, run, flexible=True)}"]

    def _read_tags(self, layout: WireClass) -> list[str]:
        """A message's own tagged fields: there are mostly none, and what has not come keeps its default."""
        lines = [
            "if data[at] == 0:",
            "    at += 1",
            "else:",
            f"    tags, at = {self._use('read_unsigned_varint')}(data, at)",
            "    for _ in range(tags):",
            f"        tag, end, at = {self._use('read_tag')}(data, at)",
        ]
        for number, field in enumerate(layout.tagged):
            lines.append(f"        {'elif' if number else 'if'} tag == {field.tag}:")
            if field.kind in FIXED and not field.is_array:
                unpack = f"{self._struct(FIXED[field.kind])}.unpack_from"
                lines.append(f"            (value.{field.name},) = {unpack}(data, at)")
                lines.append(f"            at += {struct.calcsize('>' + FIXED[field.kind])}")
            else:
                function, arguments = self._field_call("read", field, layout.flexible)
                given = ", ".join(["data", "at", *arguments])
                lines.append(f"            value.{field.name}, at = {function}({given})")
        return [*lines, "        else:", "            at = end", f"        {self._use('check_end')}(at, end)"]

    def _writer(self, layout: WireClass, name: str) -> str:
        argument = "value" if layout.fields else "_"
        lines = [f"def _write_{name}(out: bytearray, {argument}: {layout.name}) -> None:"]
        for run in runs(layout.plain):
            if codes := codes_of(run):
                values = ", ".join(f"value.{field.name}" for field in run)
                lines.append(f"    out += {self._struct(codes)}.pack({values})")
            else:
                function, arguments = self._field_call("write", run[0], layout.flexible)
                lines.append(f"    {function}({', '.join(['out', self._given(layout, run[0]), *arguments])})")
        if layout.tagged:
            lines += self._write_tags(layout)
        elif layout.flexible:
            lines.append("    out.append(0)")
        return "\n".join(map(folded, [*lines, *(["    pass"] if len(lines) == 1 else [])])) + "\n"

    def _given(self, layout: WireClass, field: WireField) -> str:
        """The value that is written: where only other versions know null, an empty string instead, or an error."""
        declared = self._unions[layout.name].fields[field.name].annotation
        if field.nullable or not declared.endswith(" | None") or field.kind == "uuid":
            return f"value.{field.name}"
        if field.kind == "string" and not field.is_array:
            return f'value.{field.name} or ""'
        return f'{self._use("need")}(value.{field.name}, "{field.name}")'

    def _write_tags(self, layout: WireClass) -> list[str]:
        lines = ["    tags: list[tuple[int, bytes | bytearray]] = []"]
        for field in layout.tagged:
            default = self._unions[layout.name].fields[field.name].default
            test = {"()": f"value.{field.name}", "False": f"value.{field.name}"}.get(default)
            lines.append(f"    if {test or f'value.{field.name} != {default}'}:")
            if field.kind in FIXED and not field.is_array:
                packed = f"{self._struct(FIXED[field.kind])}.pack(value.{field.name})"
                lines.append(f"        tags.append(({field.tag}, {packed}))")
            else:
                function, arguments = self._field_call("write", field, layout.flexible)
                given = ", ".join(["field", f"value.{field.name}", *arguments])
                lines += ["        field = bytearray()", f"        {function}({given})"]
                lines.append(f"        tags.append(({field.tag}, field))")
        return [*lines, f"    {self._use('write_tags')}(out, tags)"]


def runs(fields: list[WireField]) -> list[list[WireField]]:
    """Neighbours of fixed size together, every other field alone."""
    result: list[list[WireField]] = []
    for field in fields:
        if field.fixed and result and result[-1][0].fixed:
            result[-1].append(field)
        else:
            result.append([field])
    return result


def codes_of(run: list[WireField]) -> str:
    """The struct codes of the fields of fixed size among them."""
    return "".join(field.fixed or "" for field in run)


def bytes_of(run: list[WireField]) -> int:
    return struct.calcsize(f">{codes_of(run)}")


def ahead(run: list[WireField], more: int = 0) -> str:
    """The position behind fields that were read and not yet passed."""
    passed = bytes_of(run) + more
    return f"at {'+' if passed > 0 else '-'} {abs(passed)}" if passed else "at"


def is_short(field: WireField) -> bool:
    """Return true if one byte usually holds the field's length. Flexible versions read such a field in place."""
    if field.is_array:
        return field.kind in {"int32", "string", "entity"}
    return field.kind in {"string", "bytes"}


def folded(line: str) -> str:
    """A line that is too long, broken at its commas as the formatter does."""
    if len(line) <= LINE_LENGTH:
        return line
    indent = " " * (len(line) - len(line.lstrip()))
    if line.startswith("def "):
        head, rest = line.split("(", 1)
        arguments, result = rest.split(") -> ", 1)
        return f"{head}(\n    {arguments}\n) -> {result}"
    if " = " in line and not line.lstrip().startswith("("):
        targets, call = line.strip().split(" = ", 1)
        return f"{indent}(\n" + "".join(f"{indent}    {it},\n" for it in targets.split(", ")) + f"{indent}) = {call}"
    head, rest = line.split("(", 1)
    return f"{head}(\n" + "".join(f"{indent}    {it},\n" for it in rest[:-1].split(", ")) + f"{indent})"


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def struct_name(codes: str) -> str:
    """A name for the layout: "hiiqB" is _H_I2_Q_U8."""
    letters = {"?": "T", PREFIX: "U8", "H": "U16"}
    counted = [(letters.get(code, code.upper()), len(list(run))) for code, run in itertools.groupby(codes)]
    return "".join(f"_{code}{count if count > 1 else ''}" for code, count in counted)
