"""A sort of data in the storage of a fabric, in two phases, as GraySort's by smallpond on 3FS.

::

    graph    what nodes read, compute, exchange and write, as a graph of work; how much that is
    config   the keys of YAML files
    measures how long phases take, and what a sort moves, beside what NICs carry
    kinds    the kind of job

Each node takes its part of the input apart into partitions, which are then each sorted by one node: all that a sort of
more data than memory does. By the 3FS README both phases read from and write to 3FS, so that partitions cross the
fabric through storage; ``exchange: nodes`` sends them from node to node instead, which need memory for all of it.
"""
