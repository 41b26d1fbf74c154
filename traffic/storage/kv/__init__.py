"""A small transactional store of keys and values, in the place of 3FS's FoundationDB.

::

    store           what a store does: four calls, which any store with revisions can do
    sqlite_store    one over SQLite: versions of values, conflicts by ranges that were read
    transaction     reads at one version, writes kept back, a commit that may conflict, tries again
    lease           who is the primary of several cluster managers: a key, extended in time
    program, remote  the store as a program with a NIC, and as others see it; calls: what they say to each other
    etcd, etcd_program  etcd in its place, where that is installed, in real time

Transactions are optimistic. One reads the store as it was at one version and says at its commit what must not have
changed since; if something has, nothing is written and it begins anew. Reads can be *snapshot* reads, which must not
hold: 3FS's services read so, and add the keys that matter to what must.

One process stands for a replicated store: it has no replicas of its own, and its death is that of the whole. etcd has
replicas; one member is started here.
"""
