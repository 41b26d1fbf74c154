"""GPT-2 (124 million parameters) by DDP or FSDP2 over ``nccl``: ``torchrun gpt2.py [--sharding fsdp2] ...``."""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--sharding", choices=("ddp", "fsdp2"), default="ddp")
parser.add_argument("--layers", type=int, default=12)
parser.add_argument("--width", type=int, default=768)
parser.add_argument("--batch", type=int, default=8, help="sequences per rank")
parser.add_argument("--length", type=int, default=1024, help="tokens per sequence")
parser.add_argument("--vocabulary", type=int, default=50304)
parser.add_argument("--steps", type=int, default=4)
options = parser.parse_args()


class Block(nn.Module):
    """Attention and a perceptron, each behind a norm and added to what came in."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = width // 64
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's output."""
        batch, length, width = x.shape
        parts = self.attention(self.norm_1(x)).view(batch, length, 3, self.heads, 64).permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
        x = x + self.projection(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.norm_2(x))))


class Gpt2(nn.Module):
    """Embeddings, blocks, and a head that shares the embedding's weights."""

    def __init__(self, layers: int, width: int, length: int, vocabulary: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits of tokens."""
        x = self.tokens(x) + self.places(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
device = torch.device("cuda", torch.cuda.current_device())
with device:
    model = Gpt2(options.layers, options.width, options.length, options.vocabulary)
if options.sharding == "ddp":
    model = DistributedDataParallel(model, device_ids=[device.index], gradient_as_bucket_view=True)
else:
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
shape = (options.batch, options.length)
for step in range(options.steps):
    tokens = torch.randint(options.vocabulary, (shape[0], shape[1] + 1)).to(device)
    torch.cuda.synchronize()
    dist.barrier()
    began = time.perf_counter()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        logits = model(tokens[:, :-1])
        loss = cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    took = time.perf_counter() - began
    if dist.get_rank() == 0:
        held = torch.cuda.memory_allocated() / 2**20
        peak = torch.cuda.max_memory_allocated() / 2**20
        print(f"step {step}: {took * 1e3:.3f} ms, {held:.1f} MiB, at most {peak:.1f} MiB", flush=True)
dist.destroy_process_group()
