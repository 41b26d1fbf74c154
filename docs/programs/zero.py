"""ZeRO by DeepSpeed over gloo, eight layers of 1,024 x 1,024: ``deepspeed ... zero.py STAGE``.

After each step all parameters are compared with those of a model that learns from all ranks' data, alone.
"""

import sys
import time

import deepspeed
import torch
import torch.distributed as dist

deepspeed.init_distributed("gloo")  # By the variables that DeepSpeed's launcher sets.
stage = int(next(word for word in sys.argv[1:] if not word.startswith("--")))
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.set_num_threads(1)
RATE = 1e-4


def layers() -> torch.nn.Sequential:
    """Return the layers, the same in all ranks."""
    torch.manual_seed(0)
    return torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(8)])


alone, model = layers(), layers()
config = {
    "train_micro_batch_size_per_gpu": 4,
    "zero_optimization": {"stage": stage},
    "zero_allow_untested_optimizer": True,
}
engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.SGD(model.parameters(), RATE), config=config)
optimizer = torch.optim.SGD(alone.parameters(), RATE)
for step in range(4):
    batches = [torch.randn(4, 1024, generator=torch.Generator().manual_seed(step * ranks + i)) for i in range(ranks)]
    dist.barrier()
    began = time.monotonic()
    engine.backward(engine(batches[rank]).square().sum())
    with torch.no_grad():  # Otherwise PyTorch 2.14 refuses to gather views of the parameters.
        engine.step()
    took = time.monotonic() - began
    optimizer.zero_grad()
    (sum(alone(batch).square().sum() for batch in batches) / ranks).backward()
    optimizer.step()
    pairs = zip(engine.module.parameters(), alone.parameters(), strict=True)
    wrong = sum(int((~torch.isclose(mine, theirs, rtol=1e-5, atol=1e-6)).sum()) for mine, theirs in pairs)
    print(f"step {step}: {took * 1e3:.3f} ms, {wrong} parameters wrong", flush=True)
dist.destroy_process_group()
