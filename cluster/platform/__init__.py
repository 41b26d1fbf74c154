"""The programs that act on a scheduler's decisions: one on a management host, and an agent on every node.

::

    events       what happens to jobs and nodes, as values and as lines of a file
    state        what follows from all events: tasks, nodes, jobs; pure
    journal      the file of events: what is in it survives any program's end
    channel      messages over a connection of any transport
    messages     what the scheduler and agents send each other, as values
    codec        all of these as objects of JSON
    timers       how long they wait for each other
    liveness     which node was heard when, while the scheduler itself could hear
    scheduler_server    connections of agents and users to the scheduler
    requests, responses    what users ask and order, and what they are answered, as values
    queries      answers on jobs, lives, logs, nodes, quotas; also by a folder that is left
    event_lines  events as lines for people
    client       the user's side: over the fabric, and to a cluster that is up on this machine
    gateway      where users of this machine reach a cluster that is up
    pacing       so in a guest, and how its virtual time goes on meanwhile
    scheduler_program, agent_program    what decides, orders and notices; what starts ranks and is heard
    health       who is validated when, and what follows for nodes and jobs
    ranks        ranks as processes, as agents start them
    watching     waiting for a rank's end and its files without looking again and again
    programs     the scheduler and agents as programs in hosts of a run
    config       what of it users of a run say
    job          all of it as a job of a run
    supervision  its programs as failures hit them, and how they are begun again
    kinds        what is measured of it, and its table
    account      what came to pass, in words
    reasons      reasons of events, as values; old_words: the sentences that older journals have instead
    event_rows   rows of the table of events: how they are made, and what a cell of them means
    failure_cost what a failure costs, in five parts; costs_by_events: those of each failure, from the journal alone
    proof        pure: whether a step was lost or made twice, by what ranks printed; training_sums: what they must print
    user         what a user's program may ask and say: the suspend command
    counted_steps    a user's program that only counts
    rank_words       what a rank and who keeps it go by under either engine: rank 0's port, the saved step
    gang             for users' programs: the ranks of a job in a ring, and sums over them
    training_steps   a user's program that trains: computes, adds up over its ranks, has checkpoints
    training_saves, storage_saves    its state, and checkpoints in a folder or in a run's file system
    graph_steps      one whose steps are a training graph or collectives: graph_jobs are their keys, graph_play their
                     ranks, stage_file what these know of the fabric
    lockstep     one whose ranks step together

The scheduler writes an event before it acts on it, and asks the nodes of a job before any rank of it starts. Whichever
program is killed begins again from the journal and from what the others say; ranks of an agent that is killed end with
it.
"""
