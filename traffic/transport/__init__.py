"""What carries data between programs.

::

    connection   what programs need of a transport: protocols, and the words that all share
    tcp          the kernel's TCP
    verbs        RDMA writes, as queue_pairs say
    messages     packets that take any path, over UDP, as message_config says
    streams      what the two have in common: how their ends meet
    sampling     what connections say of themselves, in a series
    carrier      whether a NIC's link works

Collectives, storage, streams and fan-in take any transport (:meth:`traffic.job.Stage.transport`): collectives wait in
threads, storage in an event loop. Programs of background flows and of the patterns' pairs hold TCP
sockets. Another transport is a module with classes of the protocols. ``tests/traffic/transport`` has a small one,
``memory_transport.py``, and says what programs count on, ``test_transports.py``.
"""
