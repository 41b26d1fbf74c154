"""Node health: what is checked of nodes and when, what takes them out, what brings them back, and who is a lemon.

::

    config       the keys of ``health:`` of a platform
    checks       results of checks, as values and as rows
    xids         GPU errors by their Xid: what each asks for, and how the kernel's log tells them
    pairs        pure: which two nodes measure bandwidth, and which of them a slow pair is due to
    validation   pure: a validation under way: who is asked what next, and what it found
    histories    pure: what happened to each node; when it may be repaired, and whether it is a lemon
    stalls       pure: whether the ranks of a job still move, and who of them the others wait for
    host         what a host says of its NICs and of its GPUs
    bandwidth    the test of a pair: real packets from one NIC to another
    check_program    a check as a program of its own, and what it says
    gpu_teams    pure: which GPUs of a node add up together, what their links allow, who is to blame if they are slow
    allreduce_check, gpu_allreduce    the allreduce in a node, by that program
    storage_check, storage_stress    a file written to the storage and read back, by that program
    node         the health of one node, for its agent: carries out checks, watches counters and errors

:mod:`cluster.platform` joins it to the scheduler and to agents. The checks are those of Fire-Flyer 2's validator
(arXiv 2408.14158, VII), as far as an emulated node has what they check; lemons are found by signals of RSC's
(arXiv 2410.21680, IV).
"""
