"""A storage service and its clients in the manner of 3FS: files striped over chains of replicas, over any transport.

::

    job, orders         the run's side: starts programs, publishes chain tables, gathers rows; its orders
    client/             in a compute host: reads and writes that are retried and verified, and the loads
    service/            in a storage node: chunks, disks, the CRAQ protocol, targets that come back
    managers/           the cluster manager out of band, or several as programs with a NIC
    wire/               messages, calls, links and the loop that programs wait in
    kv/                 a small transactional store of keys and values
    metadata/           files: metadata servers, loads, programs' calls
    kv_cache/           a cache of attention's keys and values on storage
    member, control     heartbeats and newer chains in turns; what they carry
    chains, chain_states  pure: where chunks live; the states of a chain's targets
    placement, payload, updates  pure: the order of targets, what chunks hold, what a write makes of a chunk
    history, content_history  pure: checks of what clients and targets saw; history_job records it
    finite, apart       a job whose load has an end; services and clients as two jobs
    returns, tables, load_measures  rows of a phase and what they mean
    config, load_config, fio_config  the keys of YAML files

Sources: the design notes and code of deepseek-ai/3FS at e2cef822 ("3FS" below), and Fire-Flyer AI-HPC, arXiv
2408.14158v2, section VI-B ("FF2").
"""
