"""Checkpoints, pure: how often to write one, what is in it, who writes and reads which bytes, which are kept.

::

    intervals      the interval that costs least, by Young and Daly, and what any interval costs on average
    tensors        tensors, and which bytes of which of them nodes hold
    writing        from what nodes hold to what each writes: every byte once, in chunks, evenly
    index          where each byte of each tensor is; as JSON, written last
    restoring      from an index to what each node reads: all or a part, by any number of nodes
    generations    which checkpoints are complete, which are kept, which are removed
"""
