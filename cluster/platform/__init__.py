"""The programs that act on a scheduler's decisions: one on a management host, and an agent on every node.

::

    events       what happens to jobs and nodes, as values and as lines of a file
    state        what follows from all events: tasks, nodes, jobs; pure
    journal      the file of events: what is in it survives any program's end
    channel      messages over a connection of any transport
    messages     what the scheduler and agents tell each other
    timers       how long they wait for each other
    doors        where agents and users reach the scheduler, and what users are answered
    scheduler_program, agent_program    what decides, orders and notices; what starts ranks and is heard
    health       who is validated when, and what follows for nodes and jobs
    ranks        ranks as processes, as agents start them
    programs     the scheduler and agents as programs in hosts of a run
    job          all of it as a job of a run
    kinds        what is measured of it, and its table
    account      what came to pass, in words
    user         what a user's program may ask and say: the suspend command
    counted_steps    a user's program that only counts

The scheduler writes an event before it acts on it. Whichever program is killed begins again from the journal and from
what the others say; ranks of an agent that is killed end with it.
"""
