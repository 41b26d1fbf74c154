"""Files on the storage: 3FS's metadata service, as programs with NICs, and what programs of users see of it.

::

    records, errors     inodes, entries, sessions as keys and values; what can be wrong, by POSIX's names
    tree                pure: operations on names, as functions of a transaction
    lengths             pure: lengths from hints of several writers, never back within a truncate version
    sessions, once      pure: who has a file open for writing; requests that are carried out once
    collection          pure: what was removed is collected, after a while
    owners              pure: which servers live, and which of them owns an inode
    server              a server without sockets; program: with a NIC; remote, calls: what it is asked and answers
    latent_store        a store that takes FoundationDB's time
    client              a client's calls, tried again; files: files over them and over chunks
    chunks              what files need of storage; storage_chunks: by a client of it
    ring, usrbio        rings of IOs; the calls of programs without an event loop
    mounting            how programs find a run's file system and connect to it
    loads, load_config  what processes of fio and mdtest do; clients: as programs
    job, job_config, kinds  as a kind of job
    config              the keys of metadata servers

Sources: deepseek-ai/3FS at e2cef822, ``src/meta`` and ``src/common/kv``; its design notes where the code has no other.
"""
