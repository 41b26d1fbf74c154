"""What the module and Python say to each other is declared in one place, and both have it the same."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated

import numpy as np
import pytest

from fabric.queueing import vl_abi
from fabric.queueing.c_struct import U8, U32, U64, StructLayout
from fabric.queueing.vl_abi import LAYOUTS, DropCause, FlowControlMode, Option, Wait

NUMBERS = {"VL_": FlowControlMode, "VL_OPTION_": Option, "VL_DROP_": DropCause}


def members() -> list[tuple[str, str]]:
    return [(layout.name, member.name) for layout in LAYOUTS for member in layout.members]


def in_c(expressions: list[str], place: Path) -> list[int]:
    """Return what the C compiler makes of constants that may use the header of the module."""
    lines = "".join(f'printf("%lu\\n", (unsigned long)({expression}));\n' for expression in expressions)
    program = f'#include <stddef.h>\n#include <stdio.h>\n#include "vl_abi.h"\nint main(void)\n{{\n{lines}}}\n'
    (place / "layout.c").write_text(program)
    command = ["gcc", "-I", str(vl_abi.HEADER.parent), "-o", str(place / "layout"), str(place / "layout.c")]
    subprocess.run(command, check=True, timeout=60)
    out = subprocess.run([place / "layout"], check=True, timeout=60, capture_output=True, text=True).stdout
    return [int(line) for line in out.split()]


def test_the_header_of_the_module_is_as_the_table_has_it() -> None:
    text = vl_abi.HEADER.read_text()
    assert text == vl_abi.header(), "one of both was changed alone; run: python -m fabric.queueing.vl_abi"


def test_the_compiler_lays_every_struct_out_as_python_does(tmp_path: Path) -> None:
    sizes = [f"sizeof(struct {layout.name})" for layout in LAYOUTS]
    offsets = [f"offsetof(struct {name}, {member})" for name, member in members()]
    widths = [f"sizeof(((struct {name} *)0)->{member})" for name, member in members()]
    fields = [field for layout in LAYOUTS for field in (layout.dtype.fields or {}).values()]
    expected = [layout.dtype.itemsize for layout in LAYOUTS]
    expected += [offset for _, offset, *_ in fields] + [kind.itemsize for kind, *_ in fields]
    assert in_c([*sizes, *offsets, *widths], tmp_path) == expected
    assert [layout.size_bytes for layout in LAYOUTS] == expected[: len(LAYOUTS)]


def test_numbers_have_the_same_values_in_c(tmp_path: Path) -> None:
    named = {prefix + one.name: int(one.value) for prefix, kind in NUMBERS.items() for one in kind}
    named |= {f"VL_{name}": getattr(vl_abi, name) for name in ("VERSION", "LANES", "MANAGEMENT_LANE", "DSCPS")}
    named |= {"VL_MODES": len(FlowControlMode), "VL_OPTION_COUNT": len(Option) + 1, "VL_CAUSES": len(DropCause)}
    assert dict(zip(named, in_c(list(named), tmp_path), strict=True)) == named


@pytest.mark.parametrize("kind", NUMBERS.values())
def test_numbers_follow_each_other(kind: type[Enum]) -> None:
    """As indices of arrays, and for the count that C has of them."""
    numbers = [one.value for one in kind]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def test_records_go_to_bytes_and_back_as_numpy_reads_them() -> None:
    waits = [Wait(input_index=70 + i, input_lane=3, lane=15 - i, bytes=2**40) for i in range(2)]
    data = b"".join(map(vl_abi.WAIT.pack, waits))
    assert [vl_abi.WAIT.unpack(data, i * vl_abi.WAIT.size_bytes) for i in range(2)] == waits
    assert np.frombuffer(data, vl_abi.WAIT.dtype).tolist() == [(70 + i, 3, 15 - i, 0, 2**40) for i in range(2)]


@dataclass(frozen=True)
class Sample:
    """A struct with an array."""

    count: Annotated[int, U32, "of all"]
    reserved: Annotated[int, U32]
    each: Annotated[tuple[int, ...], U64.array(2, "KINDS")]


@dataclass(frozen=True)
class Gapped:
    """A struct in whose middle C leaves three bytes unused."""

    kind: Annotated[int, U8]
    count: Annotated[int, U32]


def test_a_declaration_is_c() -> None:
    lines = StructLayout("sample", Sample).declaration().splitlines()
    assert lines[:5] == [
        "struct sample {",
        "\t__u32 count;\t/* of all */",
        "\t__u32 reserved;",
        "\t__u64 each[KINDS];",
        "};",
    ]
    assert lines[5] == '_Static_assert(sizeof(struct sample) == 24, "sample");'
    assert lines[-1] == '_Static_assert(__builtin_offsetof(struct sample, each) == 8, "sample.each");'


def test_a_struct_with_gaps_is_refused() -> None:
    with pytest.raises(TypeError, match="struct gapped: C leaves gaps between its members; fill them"):
        StructLayout("gapped", Gapped)
