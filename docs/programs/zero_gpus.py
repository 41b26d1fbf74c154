"""ZeRO by DeepSpeed over ``nccl``, eight products of 4,096 x 4,096 in BF16: ``torchrun zero_gpus.py STAGE``."""

import os
import sys
import time

import deepspeed
import torch
import torch.distributed as dist

LAYERS, WIDTH, ROWS = 8, 4096, 4096

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
deepspeed.init_distributed("nccl")
stage = int(sys.argv[1])
model = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)])
config = {
    "train_micro_batch_size_per_gpu": ROWS,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": stage},
    "zero_allow_untested_optimizer": True,
}
engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(model.parameters(), lr=1e-4), config=config)
for step in range(4):
    batch = torch.randn(ROWS, WIDTH, device=engine.device, dtype=torch.bfloat16)
    torch.cuda.synchronize()
    dist.barrier()
    began = time.perf_counter()
    engine.backward(engine(batch).float().square().sum())
    engine.step()
    torch.cuda.synchronize()
    if dist.get_rank() == 0:
        held = torch.cuda.max_memory_allocated() / 2**20
        print(f"step {step}: {(time.perf_counter() - began) * 1e3:.3f} ms, at most {held:.1f} MiB", flush=True)
dist.destroy_process_group()
