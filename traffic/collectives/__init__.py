"""Collectives: what they are, their schedules, and the ranks that carry them out, chunk by chunk.

- what a collective is: ``collective``, all of them in ``operations/`` and ``listing``; their data ``dataset`` and
  ``elements``, the ``result_check``, ``bandwidth``
- schedules (pure): what all are ``schedule``, lists of ``primitives``, the ``ring``, ``trees`` and ``tree_allreduce``
- ranks: ``orders``, connections between them ``wiring`` and ``chunk_connection``, what they carry out ``rank``
- jobs: what all have ``job``; ``nccl``; ``hfreduce``, with ``gpu_copies`` in nodes; ``node_limits`` in closed form
"""
