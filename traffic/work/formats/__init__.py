"""Traces and workload files of other projects, read as graphs of work and written from them. Pure: no sockets.

- what a reader makes: ``trace``; its words and numbers: ``values``, ``names``; orders and cycles: ``ordering``; which
  ranks form a group by a layout: ``layout``
- readers: ``goal``; Chakra's ``chakra_nodes``, ``chakra_protobuf``, ``chakra_json``, ``chakra``;
  PyTorch's ``pytorch_nodes``, ``pytorch_dispatched`` (gloo and others), ``pytorch``; ``kineto``, ``simai``, ``aicb``,
  ``msccl``, ``phases``
- files: ``packed`` ones, the ``files`` of a trace, ``recognise``: which reader a file needs, by its content
- writers: ``goal_writing``, ``chakra_writing``; collectives as sends and receives: ``lowering``
- what is in a trace: ``counts``
"""
