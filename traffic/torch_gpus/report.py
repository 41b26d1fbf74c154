"""What a process says of its GPUs as it ends: how long operators took, and where that is from."""

from __future__ import annotations

from collections.abc import Iterator

from fabric.units import format_size
from traffic.torch_gpus.communications import Communications
from traffic.torch_gpus.machine import Machine

_MOST_NAMED = 3


def words_of(machine: Machine, rank: str, communications: Communications) -> Iterator[str]:
    """Yield what a rank's operators took, in sentences; nothing if it had none."""
    total_ns = sum(machine.by_operator.values())
    if not total_ns:
        return
    by_bytes_ns = sum(machine.by_bytes.values())
    gpu, how = machine.gpu, " by the roofline" if machine.times is None else ""
    peak = max(device.memory.most_bytes for device in machine.devices)
    yield (
        f"GPU {gpu.name}, rank {rank}: {machine.operators} operators took {total_ns / 1e6:.3f} ms{how}; "
        f"{by_bytes_ns / total_ns:.1%} of the time is of operators by their bytes alone; at most {format_size(peak)} "
        "were allocated"
    )
    longest = machine.by_operator.most_common(_MOST_NAMED)
    yield "  longest: " + ", ".join(f"{name} {length_ns / total_ns:.1%}" for name, length_ns in longest)
    for kind, one in communications.by_kind().items():
        yield f"  {kind}: {one.calls} of together {one.size_bytes} B, {one.busy_ns / 1e6:.3f} ms under way"
    if machine.times is not None:
        missing = machine.not_measured
        measured = machine.operators - sum(missing.values())
        share = sum(machine.measured.values()) / total_ns
        names = ", ".join(f"{name} {count}" for name, count in missing.most_common(_MOST_NAMED))
        yield (
            f"  measured: {measured} operators, {share:.1%} of the time; not in the table: {sum(missing.values())}"
            + (f", most often {names}" if names else "")
        )
