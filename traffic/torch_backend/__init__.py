"""``fabric``, a backend of ``torch.distributed`` whose collectives are those of :mod:`traffic.collectives`.

Only ``process_group``, ``work`` and ``tensors`` import PyTorch; all else works on arrays:

- ``registration``: what makes PyTorch know the backend, its entry point
- ``process_group``: c10d's operations on tensors; ``work``: what they return; ``tensors``: what is in their memory
- ``calls``: an operation over arrays, or without any; ``buffers``: arrays as input and result; ``reductions``;
  ``patterns``: contents for tensors that have no data
- ``communicator``: carries a group's calls out, one after another; ``messages``: sends and receives; ``operation``:
  one that is under way
- ``meeting``: connections of a group; ``own_place``: the rank's host and NICs; ``choice``: algorithms
"""
