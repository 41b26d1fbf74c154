"""The programs that act on a scheduler's decisions: one on a management host, and an agent on every node.

::

    events       what happens to jobs and nodes, as values and as lines of a file
    state        what follows from all events: tasks, nodes, jobs; pure
    journal      the file of events: what is in it survives any program's end
    channel      messages over a connection of any transport
    messages     what the scheduler and agents tell each other
    scheduler    the program on the management host: ticks, orders, notices, missing heartbeats
    agent        the program on a node: starts and stops ranks, carries notices, is heard
    ranks        ranks as processes, as agents start them
    user         what a user's program may ask and say: the suspend command

The scheduler writes an event before it acts on it. Whichever program is killed begins again from the journal and from
what the others say; ranks of an agent that is killed end with it.
"""
