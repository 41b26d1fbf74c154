"""A cache of keys and values of attention on storage, as 3FS-KV is: what requests find, read, write and remove. Pure.

::

    trace       requests: Mooncake's JSONL, and a generator of such
    models      bytes per token of models, and the work of a prefill
    cache       which prefix of a request is there; LRU and TTL removal
    prefill     the time that reading instead of computing saves

A block is 512 tokens of a prompt. Blocks of two requests have the same id if all tokens up to their ends are the same,
so the cache finds prefixes. Blocks are files; 3FS-KV itself is not published, and this follows what its users say: data
on 3FS through its client, the index in memory.
"""
