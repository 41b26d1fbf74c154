"""DeepSpeed over gloo: an allreduce of 16 MiB, then ZeRO-1 on eight layers of 1,024 x 1,024."""

import socket
import time

import deepspeed
import torch
import torch.distributed as dist

deepspeed.init_distributed("gloo")  # By the variables that DeepSpeed's launcher sets.
rank, ranks, host = dist.get_rank(), dist.get_world_size(), socket.gethostname()
data = torch.empty(4 << 20)
for step in range(3):
    data.fill_(rank + 1)
    dist.barrier()
    began = time.monotonic()
    deepspeed.comm.all_reduce(data)
    took = time.monotonic() - began
    wrong = int((data != ranks * (ranks + 1) / 2).sum())
    print(f"{host}: allreduce {step}: {took * 1e3:.3f} ms, {wrong} wrong", flush=True)

torch.manual_seed(0)
layers = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(8)])
optimizer = torch.optim.SGD(layers.parameters(), 0.0001)
config = {"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 1}, "zero_allow_untested_optimizer": True}
engine, *_ = deepspeed.initialize(model=layers, optimizer=optimizer, config=config)
batch = torch.randn(4, 1024, generator=torch.Generator().manual_seed(rank))
for step in range(3):
    dist.barrier()
    began = time.monotonic()
    engine.backward(engine(batch).square().sum())
    engine.step()
    print(f"{host}: step {step}: {(time.monotonic() - began) * 1e3:.3f} ms", flush=True)
dist.destroy_process_group()
