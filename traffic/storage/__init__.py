"""A storage service and its clients in the manner of 3FS: files striped over chains of replicas, over real TCP.

::

    job, mgmtd          the run's side: starts programs, publishes chain tables, gathers rows
    client, workloads   in a compute host: reads, writes, verifies; the load
    service             in a storage node: listens on each of its NICs, one a zone
    replica             the state of a service's chunks and the CRAQ protocol, without sockets
    links, wire         links that are made again when lost; frames, messages and calls on TCP connections
    permits             how many at once, with a deadline for who waits
    chains, payload     pure: where chunks live and what they hold
    config              what a YAML file says

Sources: the design notes and code of deepseek-ai/3FS at e2cef822 ("3FS" below), and Fire-Flyer AI-HPC, arXiv
2408.14158v2, section VI-B ("FF2").
"""
