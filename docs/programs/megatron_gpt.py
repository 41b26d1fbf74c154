"""A GPT of Megatron-core, split over GPUs: ``torchrun megatron_gpt.py [--pipeline N] [--layers 8] ...``."""

import argparse
import os
import time
from functools import partial

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.pipeline_parallel.schedules import get_forward_backward_func
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from megatron.core.transformer.module import Float16Module
from megatron.core.transformer.transformer_config import TransformerConfig

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--pipeline", type=int, default=1, help="stages; the other ranks share tensors")
parser.add_argument("--layers", type=int, default=8)
parser.add_argument("--width", type=int, default=2048)
parser.add_argument("--length", type=int, default=2048, help="tokens per sequence")
parser.add_argument("--microbatches", type=int, default=4)
parser.add_argument("--steps", type=int, default=3)
options = parser.parse_args()

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
parallel_state.initialize_model_parallel(dist.get_world_size() // options.pipeline, options.pipeline)
model_parallel_cuda_manual_seed(1)
config = TransformerConfig(
    num_layers=options.layers, hidden_size=options.width, num_attention_heads=options.width // 128,
    tensor_model_parallel_size=dist.get_world_size() // options.pipeline,
    pipeline_model_parallel_size=options.pipeline, pipeline_dtype=torch.bfloat16,
    bf16=True, params_dtype=torch.bfloat16, use_cpu_initialization=False,
)  # fmt: skip
gpt = GPTModel(
    config, get_gpt_layer_local_spec(), vocab_size=50304, max_sequence_length=options.length,
    pre_process=parallel_state.is_pipeline_first_stage(), post_process=parallel_state.is_pipeline_last_stage(),
).cuda()  # fmt: skip
model = Float16Module(config, gpt)
optimizer = torch.optim.AdamW(model.parameters(), fused=True)


def forward(batches, model):
    """Return a microbatch's output, and what makes its loss of that."""
    tokens, places = next(batches)
    mask = torch.ones(1, 1, options.length, options.length, dtype=torch.bool, device="cuda").tril().logical_not()
    output = model(tokens, places, mask, labels=tokens)
    return output, lambda losses: (losses.float().mean(), {})


play = partial(
    get_forward_backward_func(), forward_step_func=forward, model=model, num_microbatches=options.microbatches,
    seq_length=options.length, micro_batch_size=1, forward_only=False,
)  # fmt: skip
for step in range(options.steps):
    tokens = torch.randint(50304, (1, options.length)).cuda()
    places = torch.arange(options.length, device="cuda")[None]
    torch.cuda.synchronize()
    dist.barrier()
    began = time.perf_counter()
    play(data_iterator=iter([(tokens, places)] * options.microbatches))
    optimizer.step()
    optimizer.zero_grad()
    torch.cuda.synchronize()
    dist.barrier()
    if dist.get_rank() == 0:
        print(f"step {step}: {(time.perf_counter() - began) * 1e3:.3f} ms", flush=True)
dist.destroy_process_group()
