"""A storage service and its clients in the manner of 3FS: files striped over chains of replicas, over any transport.

::

    job, mgmtd          the run's side: starts programs, publishes chain tables, gathers rows
    client, workloads   in a compute host: reads, writes, verifies; the load
    data_loader, restoring  loads with an end: epochs with computing between batches; a file read once
    finite              the job of which all of the load has an end
    samples             pure: where a data set's samples are, and which a reader has in an epoch
    service             in a storage node: listens on each of its NICs, one per zone
    replica             the state of a service's chunks and the CRAQ protocol, without sockets
    orders              what the run orders of these programs over pipes, and what they answer
    history             pure: checks of what clients and targets saw; history_client, history_job: who records it
    content_history     pure: did reads get the bytes that the writes before them make?
    causes              pure: what the bytes are for that storage sends
    apart               services and clients as two jobs, so that load plays in windows
    returns             rows of a phase: chains as they change, and what targets that come back are sent
    verification        the outcome of reading acknowledged writes back
    messages            what calls carry
    arriving, leaving   frames and payloads as they arrive; what a connection has no room for yet
    links, wire         links that are re-established when lost; frames, messages and calls on connections
    event_loop          what programs and connections wait in: looks for events less often than asyncio does
    permits             how many at once, with a deadline for waiting
    chains, payload     pure: where chunks live and what they hold
    updates             pure: what a write makes of a chunk, and what that costs its disk
    chunk_io            chunks as files use them: bytes in, bytes out
    disks, chunk_files  what reads and writes take; chunks in files
    fio_config, fio_load  loads in fio's words
    chain_states        pure: the states of a chain's targets, and how the cluster manager changes them
    manager, membership pure: the cluster manager's state; a service's part in the cluster
    chain_store, primary  chains in a store of keys and values; one of several managers
    one_writer          pure: checks that one manager at a time is the primary, and writes
    cluster             the cluster managers as the job sees them; manager_program: as programs with a NIC
    member, control     heartbeats and newer chains in turns; what they carry
    resyncing           how a predecessor brings a target up to date; returning: both over links
    placement, resync   pure: the order of targets in chains, and what a target that returns is sent
    kv/                 a small transactional store of keys and values; its __init__ lists the modules
    metadata/           files: metadata servers, loads, programs' calls; its __init__ lists the modules
    kv_cache/           a cache of attention's keys and values on storage; its __init__ lists the modules
    config, load_config the keys of YAML files; managers_config: those of several cluster managers
    tables, load_measures  rows of loads with an end, and what they come to

Sources: the design notes and code of deepseek-ai/3FS at e2cef822 ("3FS" below), and Fire-Flyer AI-HPC, arXiv
2408.14158v2, section VI-B ("FF2").
"""
