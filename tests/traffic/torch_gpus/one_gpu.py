"""What a script sees of a GPU that is not there: ``one_gpu.py CASE``, with the variables of ``fabric exec --gpu``."""

from __future__ import annotations

import io
import math
import sys
import time
from collections.abc import Callable

import torch
from torch import nn

from traffic.torch_gpus.machine import Device

SIZE = 4096
LAUNCH_S, BANDWIDTH, PEAK = 900e-9, 3.35e12, 989.4e12
"""Of an H100."""


def product_s(size: int) -> float:
    """Return how long a product of two square matrices in BF16 takes."""
    return LAUNCH_S + max(2 * size**3 / PEAK, 3 * 2 * size**2 / BANDWIDTH)


def device() -> None:
    """It is there, has a name and memory, and others are not."""
    assert torch.cuda.is_available()
    assert torch.cuda.device_count() == 2
    torch.cuda.set_device(1)
    assert torch.cuda.current_device() == 1
    assert torch.cuda.get_device_name() == "NVIDIA H100 80GB HBM3"
    assert torch.cuda.get_device_capability(0) == (9, 0)
    assert torch.cuda.get_device_properties("cuda:1").total_memory == 81_090 * 2**20
    assert torch.ones(3, device="cuda").device == torch.device("cuda:1")
    try:
        torch.cuda.set_device(2)
    except RuntimeError as error:
        assert "invalid device ordinal: GPU 2 of 2" in str(error)
    else:
        raise AssertionError("a GPU that the host does not have")


def memory() -> None:
    """Tensors take what they have, in blocks, until they go; storages count once."""
    assert torch.cuda.memory_allocated() == 0
    model = nn.Linear(1000, 1000, bias=False).to("cuda")
    assert torch.cuda.memory_allocated() == 4_000_256
    weight = model.weight
    assert weight.is_cuda
    view = weight.view(-1)[10:]
    assert torch.cuda.memory_allocated() == 4_000_256
    model(torch.ones(8, 1000, device="cuda")).sum().backward()
    assert torch.cuda.memory_allocated() == 2 * 4_000_256
    del view
    weight.grad = None
    assert torch.cuda.memory_allocated() == 4_000_256
    assert torch.cuda.max_memory_allocated() > 2 * 4_000_256
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == 4_000_256
    storage = weight.untyped_storage()
    storage.resize_(0)
    assert torch.cuda.memory_allocated() == 0
    storage.resize_(4_000_000)
    assert torch.cuda.memory_allocated() == 4_000_256
    try:
        torch.empty(80 * 2**30, dtype=torch.uint8, device="cuda")
    except torch.cuda.OutOfMemoryError as error:
        assert "CUDA out of memory. Tried to allocate 80 GiB. GPU 0 has a total capacity of 79.2 GiB" in str(error), (
            error
        )
    else:
        raise AssertionError("more than there is")
    torch.cuda.synchronize()


class Clock:
    """Time that passes by sleeping alone, as in a world of virtual time."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now_ns += math.ceil(seconds * 1e9)


def virtual_clock() -> Clock:
    """Give the machine such a clock."""
    from traffic.torch_gpus.streams import Here

    clock = Clock()
    time.sleep = clock.sleep
    Here.machine.clock = clock
    Here.machine.devices = [Device(Here.machine.gpu, clock) for _ in Here.machine.devices]
    return clock


def order() -> None:
    """Streams overlap, and wait where they are told to; events say when."""
    clock = virtual_clock()
    matrix = torch.empty(SIZE, SIZE, dtype=torch.bfloat16, device="cuda")
    side = torch.cuda.Stream()
    first, last, beside = (torch.cuda.Event(enable_timing=True) for _ in range(3))
    first.record()
    for _ in range(20):
        matrix @ matrix
    with torch.cuda.stream(side):
        side.wait_event(first)
        matrix @ matrix
        beside.record()
    last.record()
    assert not last.query()
    assert clock.now_ns == 0, "the host runs ahead"
    torch.cuda.synchronize()
    assert math.isclose(first.elapsed_time(last), 20 * product_s(SIZE) * 1e3, rel_tol=1e-4)
    assert math.isclose(clock.now_ns / 1e6, first.elapsed_time(last), rel_tol=1e-9)
    assert math.isclose(first.elapsed_time(beside), product_s(SIZE) * 1e3, rel_tol=1e-4)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        matrix @ matrix
        beside.record()
    torch.cuda.synchronize()
    assert math.isclose(last.elapsed_time(beside), product_s(SIZE) * 1e3, rel_tol=1e-4)


def training() -> None:
    """Autocast, scaler, clipping, fused and plain optimizers, checkpointing and attention run, and keep types."""
    layers = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 64)).cuda()
    scaler = torch.amp.GradScaler("cuda")
    for optimizer in (torch.optim.AdamW(layers.parameters(), fused=True), torch.optim.SGD(layers.parameters(), 0.1)):
        with torch.autocast("cuda", dtype=torch.float16):
            x = torch.utils.checkpoint.checkpoint(layers, torch.randn(8, 64).to("cuda"), use_reentrant=False)
            assert x.dtype == torch.float16
            parts = x.view(1, 8, 2, 32).transpose(1, 2)
            mixed = nn.functional.scaled_dot_product_attention(parts, parts, parts, is_causal=True)
            narrow = nn.functional.scaled_dot_product_attention(parts, parts, parts[..., :16], is_causal=True)
            assert narrow.shape[-1] == 16, "values narrower than keys, as DeepSeek's"
        scaler.scale(mixed.float().sum()).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(layers.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    with torch.cuda.nvtx.range("step"), torch.device("meta"):
        unmade = nn.Linear(8, 8)
    nn.init.trunc_normal_(unmade.to_empty(device="cuda").weight, std=0.02)
    unmade.weight.record_stream(torch.cuda.current_stream())
    assert torch.empty(3, pin_memory=True).is_pinned()
    assert torch.cuda.default_generators[0].manual_seed(7).initial_seed() == 7
    assert torch.tensor([1.0, 2.0]).sum().item() == 3.0, "tensors of the CPU are real"
    assert torch.tensor([1.0, 2.0], device="cuda").dtype == torch.float32


def reads() -> None:
    """A value that nobody computed is not read: each way ends with the line, or gives what was asked for."""
    loss = torch.randn(2, device="cuda").sum()
    layer = nn.Linear(64, 64).cuda()
    layer(torch.randn(8, 64, device="cuda")).sum().backward()
    parameters = list(layer.parameters())
    experts = torch.randn(128, 8, device="cuda").softmax(-1).topk(2).indices
    ways: tuple[Callable[[], object], ...] = (
        lambda: loss.item(), lambda: float(loss), lambda: bool(loss > 1), lambda: f"{loss:.3f}",
        lambda: loss.cpu().item(), lambda: torch.zeros(()).copy_(loss), lambda: loss.reshape(1).tolist(),
        lambda: torch.randn(3, device="cuda").nonzero(),
        lambda: nn.utils.clip_grad_norm_(parameters, 1.0).item(),
        lambda: nn.utils.clip_grad_norm_(parameters, 1.0, error_if_nonfinite=True),
        lambda: bool(parameters[0].grad.isinf().any()), lambda: torch.equal(parameters[0], parameters[0]),
        lambda: torch.histc(experts.float(), 8, 0, 8).tolist(), lambda: torch.bincount(experts.flatten()),
        lambda: torch.where(experts == 3), lambda: parameters[0][experts[:, 0] == 3],
        lambda: parameters[0].detach().cpu().numpy(), lambda: torch.save(layer.state_dict(), io.BytesIO()),
    )  # fmt: skip
    for number, way in enumerate(ways):
        try:
            way()
        except RuntimeError as error:
            assert f"{__file__}:" in str(error), (number, error)
            assert "have shapes and no values here" in str(error), (number, error)
            assert "--gpu-values nan" in str(error), (number, error)
        else:
            raise AssertionError(f"way {number} gave something")


def values() -> None:
    """Small tensors that come of the CPU have values, and what is computed of them; not what others are mixed into."""
    tokens = torch.arange(8192).reshape(8, 1024).to("cuda")
    counted = (tokens % 3 != 0).sum()
    assert counted.item() == 5461
    assert f"{counted.float() / 2:.1f}" == "2730.5"
    flags = torch.zeros(4, device="cuda")
    flags[1:3].fill_(2)
    assert flags.tolist() == [0, 2, 2, 0]
    assert flags.nonzero().flatten().tolist() == [1, 2]
    assert flags.cpu().sum() == 4
    last = flags[3:]
    flags.add_(torch.randn(4, device="cuda"))
    try:
        last.item()
    except RuntimeError as error:
        assert "no values here" in str(error)
    else:
        raise AssertionError("a value that a random one was added to")
    flags.zero_()
    assert last.item() == 0
    assert torch.full((), 3, device="cuda") == 3
    scaler = torch.amp.GradScaler("cuda", init_scale=8.0, growth_interval=1)
    weight = torch.nn.Parameter(torch.randn(4096, device="cuda"))
    optimizer = torch.optim.SGD([weight], 0.1)
    scaler.scale(weight.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 16.0, "no infinities are found"
    clock = virtual_clock()
    matrix = torch.empty(4 * SIZE, 4 * SIZE, dtype=torch.bfloat16, device="cuda")
    matrix @ matrix
    assert counted.item() == 5461
    assert clock.now_ns > product_s(4 * SIZE) * 1e9, "a read waits for the stream"


def answered() -> None:
    """Reads give nan, 0 and False where the user asked for it, and the host waits for the stream."""
    loss = torch.randn(2, device="cuda").sum()
    assert f"{loss:.3f} {loss.item()}" == "nan nan"
    assert loss.long().item() == 0
    assert not bool(loss > 1)
    layer = nn.Linear(64, 64).cuda()
    saved = io.BytesIO()
    torch.save(layer.state_dict(), saved)
    found = torch.load(io.BytesIO(saved.getvalue()))["weight"]
    assert found.shape == (64, 64) and bool(found.isnan().all()), "a checkpoint is as large as a real one"
    matrix = torch.empty(4 * SIZE, 4 * SIZE, dtype=torch.bfloat16, device="cuda")
    clock = virtual_clock()
    (matrix @ matrix).sum().item()
    assert clock.now_ns > product_s(4 * SIZE) * 1e9


def routed() -> None:
    """Experts that tokens take are drawn where the user asked for it: what is counted of them is known, and adds up."""
    scores = torch.randn(512, 8, device="cuda", requires_grad=True).softmax(-1)
    taken, experts = scores.topk(2, dim=-1, sorted=False)
    counts = torch.histc(experts.view(-1), bins=8, min=0, max=8)
    assert counts.sum().item() == 1024
    assert counts.tolist() == torch.bincount(experts.flatten(), minlength=8).tolist()
    assert max(counts.tolist()) > 3 * min(counts.tolist()), "skewed"
    assert bool((experts[:, 0] != experts[:, 1]).all()), "a token takes different experts"
    again = torch.randn(512, 8, device="cuda").topk(2).indices
    assert torch.equal(again, experts), "the same where it is recomputed"
    parts = torch.randn(1024, 16, device="cuda").split(counts.tolist())
    assert sum(len(part) for part in parts) == 1024
    taken.sum().backward()


if __name__ == "__main__":
    {one.__name__: one for one in (device, memory, order, training, reads, values, answered, routed)}[sys.argv[1]]()
