"""Measured times of operators, by name, shapes and type: in place of the roofline for those that a table has."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from fabric.errors import ConfigError

Shape = tuple[int, ...]
COLUMNS = ("operator", "shapes", "type", "us")


@dataclass(frozen=True)
class Kernel:
    """An operator as tables name it: ``aten``'s name, such as ``mm`` or ``add_``; the shapes of its tensors in the
    order of its arguments, without those of no dimension; the type of the first."""

    operator: str
    shapes: tuple[Shape, ...]
    type: str

    @classmethod
    def of(cls, operator: str, tensors: Iterable[tuple[Sequence[int], str]]) -> Kernel:
        """Return the kernel of an operator on tensors, each a shape and a type."""
        kept = [(tuple(shape), type_) for shape, type_ in tensors if shape]
        return cls(operator, tuple(shape for shape, _ in kept), kept[0][1] if kept else "")


@dataclass(frozen=True)
class KernelTimes:
    """How long operators took, in ns, launch not included: ``took_ns``."""

    took_ns: Mapping[Kernel, int]

    @classmethod
    def of_samples(cls, samples: Iterable[tuple[Kernel, float]]) -> KernelTimes:
        """Return the median of what each kernel took, in us."""
        by_kernel: dict[Kernel, list[float]] = defaultdict(list)
        for kernel, took_us in samples:
            by_kernel[kernel].append(took_us)
        return cls({kernel: round(median(all_us) * 1e3) for kernel, all_us in by_kernel.items()})

    def csv(self) -> str:
        """Return them as CSV."""
        file = io.StringIO()
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(COLUMNS)
        for kernel, took_ns in self.took_ns.items():
            shapes = " ".join("x".join(map(str, shape)) for shape in kernel.shapes)
            rows.writerow((kernel.operator, shapes, kernel.type, took_ns / 1e3))
        return file.getvalue()

    @classmethod
    def read(cls, path: Path) -> KernelTimes:
        """Return what a CSV says, the median where it says several of one kernel. Raises ConfigError, naming lines."""
        samples, faults = [], []
        with path.open(newline="") as file:
            rows = csv.DictReader(file)
            if missing := set(COLUMNS) - set(rows.fieldnames or ()):
                raise ConfigError(str(path), [f"lacks columns {', '.join(sorted(missing))} of {', '.join(COLUMNS)}"])
            for row in rows:
                try:
                    samples.append(_sample(row))
                except (TypeError, ValueError) as error:
                    faults.append(f"line {rows.line_num}: {error}")
        if faults:
            raise ConfigError(str(path), faults[:5])
        return cls.of_samples(samples)


def _sample(row: Mapping[str, str]) -> tuple[Kernel, float]:
    shapes = tuple(tuple(map(int, shape.split("x"))) for shape in row["shapes"].split())
    took_us = float(row["us"])
    if not 0 <= took_us < 1e12:
        raise ValueError(f"us {row['us']}: must be a time in microseconds, 0 or more")
    return Kernel(row["operator"].strip(), shapes, row["type"].strip()), took_us
