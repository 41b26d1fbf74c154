"""A cache of keys and values of attention on storage, as 3FS-KV is: what requests find, read, write and remove.

::

    trace       pure: requests: Mooncake's JSONL, and a generator of such; traces/ has excerpts
    models      pure: bytes per token of models, and the work of a prefill
    cache       pure: which prefix of a request is there; LRU and TTL removal
    prefill     pure: the time that reading instead of computing saves
    config      the keys of YAML files
    arrivals    pure: which requests a client plays, when, and what is there before
    files       pure: blocks as files: which can be read, and which are to be removed
    player      a client's program: plays requests over the storage service
    job, kinds  the run's side, and the kind of job that configs name

A block is 512 tokens of a prompt. Blocks of two requests have the same id if all tokens up to their ends are the same,
so the cache finds prefixes. Blocks are files; 3FS-KV itself is not published, and this follows what its users say: data
on 3FS through its client, the index in memory.
"""
