"""Work of a job as a graph: what each rank computes, sends, receives and stores, and what each piece waits for.

- ``operations``: the kinds of operation; ``graph``: a graph of them, and what makes one;
- ``checks``: graphs that cannot end, told before they are played.
"""
