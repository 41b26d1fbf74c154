"""How a rank plays its operations, in its own process: nothing goes through the run's while a step plays.

- ``rank``: the program, its connections and orders; ``orders``: what it and the run tell each other
- ``loop``: one thread that starts what may start and waits for what ends
- ``links``: messages, each way a thread per peer; ``payload``: what is in them
- ``communicator``: collectives of a group, by the schedules of :mod:`traffic.collectives`
"""
