"""``python -m fabric.world.virtual.starting MODULE ...``: what runs as a guest's program until its run is known.

It imports the modules that the run will need, and says that the guest can be forked here (:mod:`.forking`). Then it
lays the groundwork that runs have in common, if there is one, and says so again. Only then it reads its order, so all
before hangs on nothing that differs between two runs. A guest that is not forked goes the same way.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import json
import os
import random
import runpy
import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fabric.errors import EmulationError
from fabric.garbage import uncollected
from fabric.world.engine import Groundwork
from fabric.world.isolation import mounts
from fabric.world.virtual.guest import CONTROL, FORK_HERE, GROUNDWORK, STATUS

ORDER = "order"
"""The order's name in the control directory."""
_ADD_ENTROPY, _RESEED = 0x40085203, 0x5207
_SEED_BYTES = 64
_OUTPUT = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_DSYNC
"""What is written is on the host at once, whatever becomes of the guest."""


@dataclass(frozen=True)
class Order:
    """What a run's program is: a module with its arguments, in a directory. ``keep``: directories of the host that it
    sees beside those that all runs see; ``environment`` adds to that of all. ``seed``: of what it draws at random."""

    module: str
    arguments: Sequence[str]
    directory: str
    keep: Sequence[str]
    environment: Mapping[str, str]
    seed: int

    def encoded(self) -> bytes:
        """Return it as it is handed to the guest."""
        return json.dumps(asdict(self)).encode()

    def prepare(self) -> None:
        """Give this process what the run's program needs. Raises EmulationError if a directory cannot be seen here."""
        for kept in self.keep:
            Path(kept).mkdir(parents=True, exist_ok=True)
            mounts.mount("hostfs", Path(kept), 0, kept)
        # While anything has the file open that the guest had before it was forked, its name leads to that.
        for descriptor, name in ((1, "stdout"), (2, "stderr")):
            for path in (Path(os.devnull), CONTROL / name):
                opened = os.open(path, _OUTPUT)
                os.dup2(opened, descriptor)
                os.close(opened)
        os.chdir(self.directory)
        os.environ.update(self.environment)
        seed_random(self.seed)
        sys.argv = [self.module, *self.arguments]


def seed_random(seed: int) -> None:
    """Let all that is drawn at random from now on follow from a seed: the kernel's numbers, and Python's from these."""
    entropy = str(seed).encode().ljust(_SEED_BYTES, b"\0")
    with Path("/dev/urandom").open("wb", buffering=0) as kernel:
        fcntl.ioctl(kernel, _ADD_ENTROPY, struct.pack("=ii", 8 * _SEED_BYTES, _SEED_BYTES) + entropy)
        fcntl.ioctl(kernel, _RESEED)
    random.seed()
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed()


def main(imports: Sequence[str]) -> None:
    """Import, wait to be forked, here and when the groundwork is laid, and go on as the run's program."""
    with uncollected():
        for name in imports:
            importlib.import_module(name)
    gc.freeze()  # To look through what stays would write to all memory that is shared with forks.
    (CONTROL / FORK_HERE).readlink()
    if (CONTROL / GROUNDWORK).exists():
        groundwork = Groundwork(**json.loads((CONTROL / GROUNDWORK).read_bytes()))
        with uncollected():
            importlib.import_module(groundwork.module).lay(groundwork.content)
        gc.freeze()
        (CONTROL / FORK_HERE).readlink()
    values: dict[str, Any] = json.loads((CONTROL / ORDER).read_bytes())
    order = Order(**values)
    try:
        order.prepare()
    except EmulationError as error:
        (CONTROL / STATUS).write_text(f"failed {error}\n")
        return
    runpy.run_module(order.module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
