"""A list of jobs under a policy over time, composed of given costs: no packet is sent, no checkpoint written.

::

    costs      what a start, a save, a suspend, a failure cost: given, or measured elsewhere
    measured   costs that were measured with packets on a small fabric, and what they come to on a whole machine
    lives      how far a life of a job has come, and what of it is kept
    goodput    where all nodes' time went, by causes whose sum is the whole
    play       arrivals, ends, notices, faults and repairs in order of time, with a tick of the scheduler after each

Whatever comes out is as good as the costs that go in, and every result says that it is composed.
"""
