"""The other machines of a run with guests on several: how they are started, by what users have for that.

``slurm``: a step of the allocation that this process is in. ``ray``: a task in each bundle of a placement group.
``hand``: the user is shown the command for each.
"""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.sweeps.ray_cluster import connected
from fabric.errors import EmulationError, UsageError
from fabric.world.virtual.machines import Failed, spread
from fabric.world.virtual.meeting import KEY, Meeting, dialled, opened

HAND, SLURM, RAY = "hand", "slurm", "ray"
_MODULE = "fabric.world.other_machine"
_ENDS_IN_S = 30.0
_PLACED_IN_S = 120.0
_LAST_CHARACTERS = 2000
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Machines:
    """What starts the other machines of a run: ``slurm``, ``ray`` or ``hand``; ``count``: how many, this one included,
    None: as many as the allocation has. ``address``: of this machine, that the others reach, None: that of its name."""

    on: str
    count: int | None = None
    address: str | None = None

    @contextmanager
    def met(self, guests: int, tell: Tell) -> Iterator[Meeting]:
        """Open the meeting of a run's machines and have the others join, for the time of a block. Raises UsageError,
        EmulationError."""
        if self.on not in _STARTS:
            raise UsageError(f"machines on {self.on}: there are {', '.join(_STARTS)}")
        if guests < 2:
            raise UsageError(f"--on {self.on}: machines share guests, and there is one; give --guests 2, or more")
        count = self.count or _machines_of(self.on)
        if count < 2:
            raise UsageError(
                f"--on {self.on} --machines {count}: a run on one machine needs neither; give 2 or more, or omit both"
            )
        spread(guests, count)
        reached_at = self.address or _own_address()
        with opened(reached_at, count) as meeting, meeting.listener() as listener:
            port = listener.getsockname()[1]
            with _STARTS[self.on](meeting, guests, reached_at, port, tell):
                yield meeting


def _machines_of(on: str) -> int:
    if on == SLURM:
        return int(_allocation("SLURM_JOB_NUM_NODES"))
    raise UsageError(f"--on {on}: on how many machines? Give --machines 2, or more")


def _own_address() -> str:
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError as error:
        raise UsageError(
            f"no address of this machine is known ({error}); give one that the others reach: --address"
        ) from error


@contextmanager
def _by_hand(meeting: Meeting, guests: int, address: str, port: int, tell: Tell) -> Iterator[None]:
    python = shlex.quote(sys.executable)
    others = "the other machine" if meeting.machines == 2 else f"each of {meeting.machines - 1} other machines"
    tell(f"start on {others}:  {KEY}={meeting.key} {python} -m {_MODULE} {address} {port}")
    yield


# Slurm ---------------------------------------------------------------------------------------------------------------


def _allocation(name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise UsageError(
            f"--on slurm: {name} is not set, so this is not within an allocation; start it in a batch script of two "
            "nodes or more (sbatch --nodes=2)"
        )
    return value


@contextmanager
def _by_slurm(meeting: Meeting, guests: int, address: str, port: int, tell: Tell) -> Iterator[None]:
    """Start a step with a task on each other node of the allocation."""
    node, count = _allocation("SLURMD_NODENAME"), meeting.machines - 1
    if shutil.which("srun") is None:
        raise UsageError("--on slurm: srun is not on the PATH; run the command on a node of the allocation")
    cores = -(-guests // meeting.machines)
    command = [
        "srun", f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1", f"--exclude={node}", "--overlap",
        f"--cpus-per-task={cores}", "--export=ALL", "--unbuffered", f"--job-name=fabric-{meeting.machines}-machines",
        sys.executable, "-m", _MODULE, address, str(port),
    ]  # fmt: skip
    with _process_that_joins(command, meeting, address, port):
        yield


@contextmanager
def _process_that_joins(command: list[str], meeting: Meeting, address: str, port: int) -> Iterator[None]:
    """Run what starts machines during a block; if it fails, the meeting hears why."""
    with tempfile.TemporaryFile() as words:
        process = subprocess.Popen(
            command, env={**os.environ, KEY: meeting.key}, stdin=subprocess.DEVNULL, stdout=words, stderr=words
        )
        is_over = threading.Event()

        def attend() -> None:
            if process.wait() and not is_over.is_set():
                said = os.pread(words.fileno(), 1 << 20, 0).decode(errors="replace").strip()[-_LAST_CHARACTERS:]
                reason = (
                    f"{Path(command[0]).name} ended with exit code {process.returncode}: {said or 'without a word'}"
                )
                _say_why(meeting, address, port, reason)

        thread = threading.Thread(target=attend, daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            try:
                process.wait(_ENDS_IN_S)
            except subprocess.TimeoutExpired:
                process.terminate()
                process.wait(_ENDS_IN_S)
            thread.join(_ENDS_IN_S)


def _say_why(meeting: Meeting, address: str, port: int, reason: str) -> None:
    """Tell a meeting that waits for machines that they will not come; one that has met does not listen."""
    with suppress(EmulationError, OSError), dialled(address, port, meeting.key, timeout_s=5.0) as connection:
        connection.send(Failed(reason))


# Ray -----------------------------------------------------------------------------------------------------------------


@contextmanager
def _by_ray(meeting: Meeting, guests: int, address: str, port: int, tell: Tell) -> Iterator[None]:
    """Start a task in each bundle of a placement group, a machine each, but on this one."""
    cores = -(-guests // meeting.machines)
    with connected(None) as ray:
        from ray.util.placement_group import placement_group, remove_placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        here = f"node:{ray.util.get_node_ip_address()}"
        bundles = [{"CPU": cores, here: 0.001}, *({"CPU": cores} for _ in range(meeting.machines - 1))]
        group = placement_group(bundles, strategy="STRICT_SPREAD")
        try:
            if not group.wait(_PLACED_IN_S):
                raise EmulationError(
                    f"--on ray: the cluster has not placed {meeting.machines} machines of {cores} cores, this one "
                    f"among them, within {_PLACED_IN_S:g} s; it has {ray.cluster_resources()}"
                )
            tasks = [
                ray.remote(num_cpus=cores, max_retries=0)(_taken_part)
                .options(
                    scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=number)
                )
                .remote(meeting.key, address, port)
                for number in range(1, meeting.machines)
            ]
            threading.Thread(target=_attend_ray, args=(ray, tasks, meeting, address, port), daemon=True).start()
            yield
            ray.wait(tasks, num_returns=len(tasks), timeout=_ENDS_IN_S)
        finally:
            remove_placement_group(group)


def _attend_ray(ray: Any, tasks: list[Any], meeting: Meeting, address: str, port: int) -> None:
    for task in tasks:
        try:
            if why := ray.get(task):
                _say_why(meeting, address, port, why)
        except Exception as error:
            _say_why(meeting, address, port, f"Ray: {error}")


def _taken_part(key: str, address: str, port: int) -> str | None:
    """Take part, on a machine of Ray's; return why it could not."""
    command = [sys.executable, "-m", _MODULE, address, str(port), str(os.getpid())]
    done = subprocess.run(command, env={**os.environ, KEY: key}, capture_output=True, text=True, check=False)
    return done.stderr[-_LAST_CHARACTERS:] or f"exit code {done.returncode}" if done.returncode else None


_STARTS: Mapping[str, Callable[[Meeting, int, str, int, Tell], AbstractContextManager[None]]] = {
    HAND: _by_hand, SLURM: _by_slurm, RAY: _by_ray
}  # fmt: skip
