"""DistributedDataParallel over gloo: eight linear layers of 1,024 x 1,024, with 1 ms of computing in each step."""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")  # By RANK, WORLD_SIZE, MASTER_ADDR and GLOO_SOCKET_IFNAME, which fabric exec sets.
torch.manual_seed(0)
torch.set_num_threads(1)
layers = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(8)])
model = DistributedDataParallel(layers, bucket_cap_mb=8)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for step in range(4):
    began = time.monotonic()
    time.sleep(0.001)  # In virtual time nothing else takes time than this and what is sent.
    loss = model(torch.randn(4, 1024)).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if dist.get_rank() == 0:
        print(f"step {step}: {(time.monotonic() - began) * 1e3:.3f} ms", flush=True)
dist.destroy_process_group()
