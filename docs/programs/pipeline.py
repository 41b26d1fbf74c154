"""A pipeline of equal stages by ``torch.distributed.pipelining``: ``torchrun pipeline.py [--schedule 1F1B] ...``."""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--schedule", choices=("1F1B", "GPipe"), default="1F1B")
parser.add_argument("--layers", type=int, default=2, help="per stage")
parser.add_argument("--width", type=int, default=4096)
parser.add_argument("--rows", type=int, default=2048, help="of a microbatch")
parser.add_argument("--microbatches", type=int, default=8)
parser.add_argument("--steps", type=int, default=3)
options = parser.parse_args()

dist.init_process_group("nccl")
rank, ranks = dist.get_rank(), dist.get_world_size()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
width = options.width
with device:
    layers = nn.Sequential(*[nn.Linear(width, width, bias=False, dtype=torch.bfloat16) for _ in range(options.layers)])
    batch = torch.randn(options.microbatches * options.rows, width, dtype=torch.bfloat16)
stage = PipelineStage(layers, rank, ranks, device)


def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return the loss of the last stage."""
    return (output * target).sum()


made = {"1F1B": Schedule1F1B, "GPipe": ScheduleGPipe}[options.schedule](stage, options.microbatches, loss_fn=loss)
optimizer = torch.optim.SGD(layers.parameters(), lr=0.01)
for step in range(options.steps):
    torch.cuda.synchronize()
    dist.barrier()
    began = time.perf_counter()
    made.step(*[batch] if rank == 0 else [], target=batch if rank == ranks - 1 else None)
    optimizer.step()
    optimizer.zero_grad()
    torch.cuda.synchronize()
    dist.barrier()
    if rank == 0:
        print(f"step {step}: {(time.perf_counter() - began) * 1e3:.3f} ms", flush=True)
dist.destroy_process_group()
