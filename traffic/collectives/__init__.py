"""Collectives: what they are, their schedules, and the ranks that carry them out, chunk by chunk.

- what a collective is: ``collective``, all of them in ``operations/`` and ``listing``; their data ``dataset`` and
  ``elements``, the ``result_check``, ``bandwidth``
- schedules (pure): what all are ``schedule``, lists of ``primitives``, the ``ring``, blocks that go from rank to rank
  ``exchange``, ``trees`` and ``tree_allreduce``
- how a rank's two threads wait for each other: ``progress``
- programs over chunks (pure): what they are ``chunk_program``, how ranks carry them out ``program_schedule``; some of
  them ``halving_doubling``, ``hierarchical``, ``parameter_server``; those of users ``msccl``
- ranks: ``orders``, connections between them ``wiring`` and ``chunk_connection``, what they carry out ``rank``
- jobs: what all have ``job``; ``nccl``; ``hfreduce``, with ``gpu_copies`` in nodes, and over ranks that are GPUs
  ``node_allreduce``; ``node_limits`` in closed form
"""
