"""GPUs that are not there: unmodified PyTorch scripts that say ``cuda`` and ``nccl``, in virtual time.

The CPU wheel of PyTorch has no kernels and no devices of CUDA, but all else: dispatch, autograd, DDP, FSDP. So tensors
on ``cuda`` are fake ones (``FakeTensorMode``), which have a shape and no data; tensors of the CPU stay real. A small
C++ library (``device.cpp``, built once per version of PyTorch) registers a guard and hooks of CUDA: autograd asks them
for devices and streams; ``torch.cuda`` answers from here. Another name by PrivateUse1 would have spared it, but
scripts and frameworks ask for ``cuda``. TorchTitan's fake modes are for shapes: they send nothing, and no
time passes.

Python loads any of it only where asked to (``fabric exec --gpu``), and PyTorch only in users' programs:

- ``startup/``: the folder on PYTHONPATH whose ``sitecustomize`` watches for ``import torch``; ``loading``: what it does
- ``forking``: ranks that torchrun forks; ``script_imports``: of a process that has imported what their script does
- ``catalogue``: named GPUs, of vendors' datasheets; ``roofline``: how long operators take there
- ``kernel_times``: operators that were measured; ``kernel_sources``: in files of others
- ``moments``: times that may not be known yet; ``timeline``: what streams do when; ``memory``: bytes of a GPU
- ``communications``: what ``nccl`` was asked for; ``router``: draws tokens' experts
- ``machine``: the GPUs of this process, all of the above together; ``report``: its last words
- ``operators``: FLOP and bytes of an operator; ``mode``: what PyTorch does with each; ``values``: reads that cannot be;
  ``known_values``: small tensors that have some, ``sent_values``: in collectives
- ``cuda_module``, ``streams``: ``torch.cuda``; ``replacements``: what else must be another
- ``process_group``: backend ``nccl``, whose operations begin and end on streams; ``functional``: what DTensor calls
"""
