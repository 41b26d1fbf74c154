"""A PyTorch job over gloo: an allreduce of 64 MiB, as torchrun would start it, a rank per host."""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")  # By RANK, WORLD_SIZE, MASTER_ADDR and GLOO_SOCKET_IFNAME, which fabric exec sets.
rank, ranks = dist.get_rank(), dist.get_world_size()
data = torch.full((16 << 20,), float(rank))
for step in range(3):
    dist.barrier()
    began = time.monotonic()
    dist.all_reduce(data)
    took = time.monotonic() - began
    size = data.numel() * data.element_size()
    if rank == 0:
        busbw = size * 2 * (ranks - 1) / ranks / took * 8 / 1e9
        print(f"step {step}: {took * 1e3:.2f} ms, busbw {busbw:.1f} Gbit/s, sum {data[0]:g}", flush=True)
    data.fill_(float(rank))
dist.destroy_process_group()
