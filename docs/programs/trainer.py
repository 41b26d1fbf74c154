"""GPT-2's shape by Hugging Face's Trainer, from random weights and tokens: ``torchrun trainer.py [--steps 4] ...``."""

import argparse
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--layers", type=int, default=12)
parser.add_argument("--batch", type=int, default=8, help="sequences per rank")
parser.add_argument("--length", type=int, default=1024, help="tokens per sequence")
parser.add_argument("--steps", type=int, default=4)
options = parser.parse_args()


class Tokens(torch.utils.data.Dataset):
    """Sequences of random tokens, each of its own seed."""

    def __len__(self) -> int:
        return 1 << 16

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        tokens = torch.randint(50257, (options.length,), generator=torch.Generator().manual_seed(number))
        return {"input_ids": tokens, "labels": tokens}


class Times(TrainerCallback):
    """Prints how long each step took."""

    def on_step_begin(self, arguments, state, control, **_):
        """Note when a step begins."""
        self.began = time.perf_counter()

    def on_step_end(self, arguments, state, control, **_):
        """Print how long it took."""
        torch.cuda.synchronize()
        if state.is_world_process_zero:
            print(f"step {state.global_step}: {(time.perf_counter() - self.began) * 1e3:.3f} ms", flush=True)


arguments = TrainingArguments(
    output_dir="/tmp/trainer", max_steps=options.steps, per_device_train_batch_size=options.batch, bf16=True,
    logging_steps=1, save_strategy="no", report_to=[], disable_tqdm=True,
)  # fmt: skip
model = GPT2LMHeadModel(GPT2Config(n_layer=options.layers, n_positions=options.length))
Trainer(model, arguments, train_dataset=Tokens(), callbacks=[Times()]).train()
