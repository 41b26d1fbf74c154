"""Makes PyTorch know backend ``fabric``: the entry point ``torch.backends``, which ``import torch`` calls."""

from __future__ import annotations

from typing import Any

DEVICES = ("cpu", "meta")


def register() -> None:
    """Have ``torch.distributed.init_process_group("fabric")`` make groups of this project's collectives.

    Loads nothing more of this project before a group is made. Call it where PyTorch does not find the entry point: in
    an environment in which this project is not installed, or with TORCH_DEVICE_BACKEND_AUTOLOAD=0.
    """
    import torch.distributed as dist

    if dist.is_available():
        dist.Backend.register_backend("fabric", _made, extended_api=True, devices=list(DEVICES))


def _made(options: Any, of_backend: Any = None) -> Any:
    from traffic.torch_backend.process_group import made

    return made(options, of_backend)
