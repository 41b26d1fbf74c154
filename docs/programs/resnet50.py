"""ResNet-50 by DDP over ``nccl``: ``torchrun resnet50.py [--fp32] [--batch 32] [--steps 4]``."""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--fp32", action="store_true", help="without autocast to BF16")
parser.add_argument("--batch", type=int, default=32, help="images per rank")
parser.add_argument("--steps", type=int, default=4)
options = parser.parse_args()


class Bottleneck(nn.Module):
    """Three convolutions, added to what came in, which a fourth one makes as large where it must."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        after = 4 * width
        self.conv1, self.bn1 = nn.Conv2d(before, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, after, 1, bias=False), nn.BatchNorm2d(after)
        self.downsample = None
        if before != after or stride != 1:
            self.downsample = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's output."""
        out = self.bn1(self.conv1(x)).relu()
        out = self.bn2(self.conv2(out)).relu()
        out = self.bn3(self.conv3(out))
        return (out + (x if self.downsample is None else self.downsample(x))).relu()


def resnet50() -> nn.Sequential:
    """Return the network, whose parameters are in the order of torchvision's."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    layers.append(nn.MaxPool2d(3, 2, 1))
    before = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            layers.append(Bottleneck(before, width, 2 if block == 0 and width > 64 else 1))
            before = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 1000))


dist.init_process_group("nccl")
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
model = DistributedDataParallel(resnet50().to(device), device_ids=[device.index])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for step in range(options.steps):
    images = torch.randn(options.batch, 3, 224, 224, device=device)
    labels = torch.randint(1000, (options.batch,), device=device)
    torch.cuda.synchronize()
    dist.barrier()
    began = time.perf_counter()
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=not options.fp32):
        loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.cuda.synchronize()
    if dist.get_rank() == 0:
        print(f"step {step}: {(time.perf_counter() - began) * 1e3:.3f} ms", flush=True)
dist.destroy_process_group()
