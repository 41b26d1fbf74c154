"""A rank of a program that says what its operations carry: ``counted.py PROGRAM ARG ...``; a line per kind."""

import runpy
import sys
from collections import defaultdict

import torch.distributed as dist

from traffic.torch_backend.operation import Operation

elements: dict[str, list[int]] = defaultdict(list)
real = Operation.__init__


def counted(self: Operation, what: str, *rest: object) -> None:
    """Make an operation, and note its elements by its kind."""
    kind = what.partition("OpType=")[2].partition(",")[0]
    elements[kind].append(int(what.partition("Numel=")[2].partition(",")[0]))
    real(self, what, *rest)  # type: ignore[arg-type]


def said() -> None:
    """Print what all operations had carried."""
    for kind, of_kind in elements.items():
        print(kind, *of_kind, flush=True)


if __name__ == "__main__":
    Operation.__init__ = counted  # type: ignore[assignment]
    dist.destroy_process_group = said
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
