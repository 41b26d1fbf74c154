"""What carries data between programs.

::

    connection   what programs need of a transport: protocols, and the words that all share
    tcp          the kernel's TCP
    sampling     what connections say of themselves, in a series
    carrier      whether a NIC's link works

Collectives and storage take any transport (:meth:`traffic.job.Stage.transport`): collectives wait in threads, storage
in an event loop. Background flows, streams and fan-in hold TCP sockets. Another transport is a module with classes of
the protocols. ``tests/traffic/transport`` has a small one, ``memory_transport.py``, and says what programs count on,
``test_transports.py``.
"""
