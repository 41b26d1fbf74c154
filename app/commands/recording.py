"""``fabric exec --record FILE``: what the programs send each other, as a graph of work."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fabric.emulation.capture import require_file
from fabric.errors import UsageError
from fabric.model.identity import NodeId
from fabric.model.network import Fabric
from fabric.units import format_size
from fabric.world import inside
from fabric.world.engine import Engine
from runs.console import tell
from traffic.programs.recording import is_static, read_records, recording_environment

if TYPE_CHECKING:
    from traffic.work.recording.maker import Recording

_MISSED_PART, _MISSED_BYTES = 0.2, 1_000_000
"""From so much on, of what hosts have sent, it is said that the recording lacks it: headers are 5 %."""


def require_recordable(file: Path, program: Path, engine: Engine) -> None:
    """Refuse, before a fabric comes up, a file that cannot be written, and a program that cannot be recorded. Raises
    UsageError."""
    try:
        require_file(file, engine)
    except UsageError as error:
        raise UsageError(f"--record {file}: {error}") from error
    if is_static(program):
        what = f"{program} is linked statically, so its sockets cannot be watched"
        raise UsageError(f"--record {file}: {what}; give a program that is linked dynamically")


def begin_recording(environment: dict[str, str]) -> dict[str, str]:
    """Return what makes programs of this world write down what they send. Raises EmulationError without a compiler."""
    return recording_environment(_directory(), environment.get("LD_PRELOAD", ""))


def write_recording(fabric: Fabric, hosts: Sequence[NodeId], sent_bytes: int, file: Path) -> None:
    """Write what programs have done as GOAL text, and say what it is, and what it lacks of what hosts have sent.

    Raises TrafficError if nothing was recorded.
    """
    from traffic.work.formats.goal_writing import write_goal  # Few record, and all who run programs would load it.
    from traffic.work.recording.maker import recording_of

    host_of = {nic.ip: host.name for host, nics in fabric.nics_of.items() for nic in nics}
    recording = recording_of(file.stem, read_records(_directory()), host_of, [host.name for host in hosts])
    with file.open("w") as output:
        output.writelines(f"// rank {rank} was on {host}\n" for rank, host in enumerate(recording.hosts))
        output.write(write_goal(recording.graph))
    for text in words_of(recording, sent_bytes):
        tell(f"{file}: {text}")


def _directory() -> Path:
    return inside.RUN_DIR / "records"


def words_of(recording: Recording, sent_bytes: int) -> list[str]:
    """Return what to say of a recording: what it has, what was left out, and what it lacks of what hosts have sent."""
    from traffic.work.recording.connections import OF_A_HOST

    sizes = recording.sizes
    size = sum(sizes)
    lasted = f"{recording.lasted_s * 1e3:,.3f} ms from the first byte to the last"
    words = [f"{recording.graph.ranks} ranks, {len(sizes):,} messages, {format_size(size)}, {lasted}"]
    words += [f"left out: {what}: {format_size(left)}" for what, left in sorted(recording.left_out.items()) if left]
    words += [f"doubtful: {fault}" for fault in recording.faults]
    missed = sent_bytes - size - sum(left for what, left in recording.left_out.items() if what != OF_A_HOST)
    if missed > max(_MISSED_BYTES, _MISSED_PART * sent_bytes):
        how = "programs that are linked statically, or make system calls by themselves, are not recorded"
        words.append(f"doubtful: hosts have sent {format_size(sent_bytes)}, headers counted: {how}")
    return words
