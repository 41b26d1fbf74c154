"""A graph of work, made of what unmodified programs did with their sockets. Pure: takes records as values.

- which rank a process belongs to: ``ranks``; both ends of each connection: ``connections``;
- what each thread did after what: ``causes``, of the ``steps`` of its graph; bytes as messages: ``messages``;
- all of it: ``maker``.
"""
