"""Structs that a kernel module and Python share, each declared once: a dataclass whose annotations say how C lays a
member out. :class:`StructLayout` derives C's declaration, NumPy's dtype and the packed bytes from it."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_type_hints

import numpy as np

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Record = TypeVar("Record", bound="DataclassInstance")


@dataclass(frozen=True)
class Unsigned:
    """An unsigned number, in the machine's byte order; with a count an array of them, whose size has a name in C."""

    size_bytes: int
    count: int | None = None
    count_name: str = ""

    def array(self, count: int, count_name: str) -> Unsigned:
        """Return an array of such numbers."""
        return Unsigned(self.size_bytes, count, count_name)


U8, U16, U32, U64 = (Unsigned(size_bytes) for size_bytes in (1, 2, 4, 8))
_PACKED = {1: "B", 2: "H", 4: "I", 8: "Q"}


@dataclass(frozen=True)
class Member:
    """A member of a struct, and what its annotation says of it."""

    name: str
    kind: Unsigned
    says: str

    @property
    def c(self) -> str:
        """Its declaration in C."""
        array = "" if self.kind.count is None else f"[{self.kind.count_name}]"
        return f"__u{8 * self.kind.size_bytes} {self.name}{array};{_comment(self.says)}"

    @property
    def numpy(self) -> tuple[Any, ...]:
        """Its field in a dtype."""
        shape = () if self.kind.count is None else ((self.kind.count,),)
        return (self.name, f"=u{self.kind.size_bytes}", *shape)

    @property
    def packed(self) -> str:
        """Its format in the module struct."""
        return f"{self.kind.count or 1}{_PACKED[self.kind.size_bytes]}"


class StructLayout(Generic[Record]):
    """How records of a class lie in memory, under C's name for them.

    ``of`` is a dataclass with members such as ``Annotated[int, U32, "what it says"]``, or, for arrays,
    ``Annotated[tuple[int, ...], U64.array(6, "VL_CAUSES")]``. Raises TypeError if C would put gaps between its members.
    """

    def __init__(self, name: str, of: type[Record]) -> None:
        hints = get_type_hints(of, include_extras=True)
        self.name = name
        self.of = of
        self.members = tuple(_member(field.name, hints[field.name]) for field in fields(of))
        self.dtype = np.dtype([member.numpy for member in self.members])
        self._struct = struct.Struct("=" + "".join(member.packed for member in self.members))
        self._places = _places(self.members)
        if np.dtype([member.numpy for member in self.members], align=True).itemsize != self.size_bytes:
            raise TypeError(f"struct {name}: C leaves gaps between its members; fill them with reserved ones")

    @property
    def size_bytes(self) -> int:
        """The size of a record."""
        return self._struct.size

    def pack(self, record: Record) -> bytes:
        """Return a record's bytes."""
        values: list[int] = []
        for member, place in zip(self.members, self._places, strict=True):
            value = getattr(record, member.name)
            values += value if isinstance(place, slice) else [value]
        return self._struct.pack(*values)

    def unpack(self, data: bytes, offset: int = 0) -> Record:
        """Return the record that begins at ``offset``."""
        values = self._struct.unpack_from(data, offset)
        return self.of(**{member.name: values[place] for member, place in zip(self.members, self._places, strict=True)})

    def declaration(self) -> str:
        """Return the struct in C, and that it must have this layout."""
        lines = [f"struct {self.name} {{", *(f"\t{member.c}" for member in self.members), "};"]
        return "\n".join([*lines, *self._assertions()])

    def _assertions(self) -> Iterator[str]:
        yield f'_Static_assert(sizeof(struct {self.name}) == {self.size_bytes}, "{self.name}");'
        for member in self.members:
            offset = self.dtype.fields[member.name][1]  # type: ignore[index]
            place = f"__builtin_offsetof(struct {self.name}, {member.name})"
            yield f'_Static_assert({place} == {offset}, "{self.name}.{member.name}");'


@dataclass(frozen=True)
class Numbering:
    """An enumeration in C. ``count_name`` is one more than the last of its numbers."""

    name: str
    of: type[Enum]
    prefix: str
    count_name: str
    says: Mapping[Enum, str]
    first_name: str = ""
    """What is 0 in C, if no member is."""

    def declaration(self) -> str:
        """Return the enumeration in C."""
        first = [f"\t{self.first_name} = 0,"] if self.first_name else []
        named = [f"\t{self.prefix}{one.name} = {one.value},{_comment(self.says.get(one, ''))}" for one in self.of]
        count = f"\t{self.count_name} = {max(one.value for one in self.of) + 1},"
        return "\n".join([f"enum {self.name} {{", *first, *named, count, "};"])


def definition(name: str, value: int | str, says: str) -> str:
    """Return a constant in C."""
    return f"#define {name} {value}{_comment(says)}"


def _member(name: str, hint: Any) -> Member:
    kind, *says = hint.__metadata__
    return Member(name, kind, says[0] if says else "")


def _places(members: tuple[Member, ...]) -> tuple[int | slice, ...]:
    """Return where each member's value, or those of an array, are among all numbers of a record."""
    places: list[int | slice] = []
    place = 0
    for member in members:
        count = member.kind.count
        places.append(place if count is None else slice(place, place + count))
        place += count or 1
    return tuple(places)


def _comment(says: str) -> str:
    return f"\t/* {says} */" if says else ""
