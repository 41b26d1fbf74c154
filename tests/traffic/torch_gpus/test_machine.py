"""GPUs that are not there, without PyTorch: peaks, time of operators, memory, and what is said at the end."""

from __future__ import annotations

import pytest

from fabric.errors import UsageError
from traffic.torch_gpus.catalogue import LAUNCH_NS, gpu_named
from traffic.torch_gpus.communications import Communications
from traffic.torch_gpus.machine import Machine
from traffic.torch_gpus.memory import DoesNotFitError, Memory
from traffic.torch_gpus.report import words_of
from traffic.torch_gpus.roofline import Work, duration_ns, peak_flops
from traffic.torch_gpus.variables import seed_and_skew

H100 = gpu_named("h100")


@pytest.mark.parametrize("name", ["h100", "h800", "a100", "a100_pcie"])
def test_every_gpu_has_peaks_that_grow_as_types_shrink_and_names_its_source(name: str) -> None:
    gpu = gpu_named(name)
    assert peak_flops(gpu, "fp64") <= peak_flops(gpu, "fp32") < peak_flops(gpu, "tf32") < peak_flops(gpu, "bf16")
    assert peak_flops(gpu, "fp16") == peak_flops(gpu, "bf16") <= peak_flops(gpu, "fp8")
    assert "NVIDIA" in gpu.source


def test_a_gpu_that_is_not_known_is_refused_with_those_that_are() -> None:
    with pytest.raises(UsageError, match="GPU 'h1000' is not known; use one of h100, h800, a100, a100_pcie"):
        gpu_named("h1000")


def test_an_operator_takes_the_longer_of_its_flop_and_its_bytes_and_a_launch() -> None:
    assert duration_ns(H100, Work(flop=989_400_000_000, type="bf16", memory_bytes=1)) == LAUNCH_NS + 1_000_000
    assert duration_ns(H100, Work(flop=1, type="bf16", memory_bytes=3_350_000_000)) == LAUNCH_NS + 1_000_000
    assert duration_ns(H100, Work(memory_bytes=3350)) == LAUNCH_NS + 1
    assert duration_ns(H100, Work(host_bytes=64_000)) == LAUNCH_NS + 1_000


def test_memory_is_taken_in_blocks_and_refused_where_it_does_not_fit() -> None:
    memory = Memory(4 << 20)
    taken = memory.allocate(1)
    assert (taken, memory.allocated_bytes, memory.reserved_bytes) == (512, 512, 2 << 20)
    memory.allocate(3 << 20)
    memory.free(taken)
    assert (memory.allocated_bytes, memory.peak_bytes) == (3 << 20, (3 << 20) + 512)
    with pytest.raises(DoesNotFitError) as refused:
        memory.allocate((1 << 20) + 1)
    assert refused.value == DoesNotFitError((1 << 20) + 1, 3 << 20, 4 << 20)
    memory.allocate(1 << 20)
    memory.free(3 << 20)
    memory.release()
    memory.forget_peaks()
    assert (memory.reserved_bytes, memory.peak_bytes) == (2 << 20, 1 << 20)
    assert memory.most_bytes == 4 << 20, "whatever a program has forgotten"


def test_the_share_of_time_that_bytes_alone_say_is_told() -> None:
    machine = Machine(H100, 1, clock=lambda: 0)
    assert not list(words_of(machine, "0", Communications()))
    machine.play("mm", Work(flop=3 * (10**6 - LAUNCH_NS) * 989_400, type="bf16"), 0)
    machine.play("add", Work(memory_bytes=(10**6 - LAUNCH_NS) * 3350), 0)
    machine.devices[0].memory.allocate(3 << 20)
    said = " ".join(words_of(machine, "0", Communications()))
    assert "2 operators took 3.998 ms" in said
    assert "25.0% of the time is of operators by their bytes alone" in said
    assert "3 MiB" in said
    assert machine.stream().mark().at_ns() == 3_998_200


def test_what_nccl_was_asked_for_is_told_by_kind() -> None:
    machine, asked = Machine(H100, 1, clock=lambda: 0), Communications()
    machine.play("mm", Work(flop=1), 0)
    for kind, size_bytes, busy_ns in (("all_gather", 512, 1_000_000), ("send", 8, 0), ("all_gather", 1024, 500_000)):
        asked.called(kind, size_bytes)
        asked.took(kind, busy_ns)
    assert list(words_of(machine, "0", asked))[2:] == [
        "  all_gather: 2 of together 1536 B, 1.500 ms under way", "  send: 1 of together 8 B, 0.000 ms under way",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "fault"),
    [("x", "is not SEED or SEED:SKEW"), ("1:", "is not SEED"), ("-1", "give a seed from 0"), ("1:101", "give a seed")],
)
def test_a_router_that_cannot_be_is_refused(text: str, fault: str) -> None:
    with pytest.raises(UsageError, match=f"--gpu-router {text}: {fault}"):
        seed_and_skew(text)
    assert seed_and_skew("7:1.5") == (7, 1.5)


def test_a_thread_has_a_current_device_and_a_current_stream_of_each() -> None:
    machine = Machine(H100, 2, clock=lambda: 0)
    machine.current_device = 1
    side = machine.devices[1].new_stream()
    machine.set_stream(1, side)
    machine.play("add", Work(memory_bytes=3350 * 1000), 1)
    assert machine.stream() is machine.devices[1].streams[side]
    assert machine.devices[1].streams[0].mark().at_ns() == 0
    assert machine.devices[1].mark().at_ns() == LAUNCH_NS + 1000
    assert machine.devices[0].mark().at_ns() == 0
