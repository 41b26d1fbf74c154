"""Checkpoints: how often to write one, what is in it, who writes and reads which bytes, which are kept; pure, but for
the last four, by which programs write them to a file system and restore them.

::

    intervals      the interval that costs least, by Young and Daly, and what any interval costs on average
    tensors        tensors, and which bytes of which of them nodes hold
    writing        from what nodes hold to what each writes: every byte once, in chunks, evenly
    index          where each byte of each tensor is; as JSON, written last
    restoring      from an index to what each node reads: all or a part, by any number of nodes
    generations    which checkpoints are complete, which are kept, which are removed
    rates          how fast nodes can write, by closed form, and what binds
    contents       what tensors of a played checkpoint hold
    manager        what writes to a file system and restores from it, in an event loop
    client, job    nodes that do so as programs, and as a job of a run
    config, kinds  its keys, its table, and what is measured of it
"""
