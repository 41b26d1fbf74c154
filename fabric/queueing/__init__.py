"""The queues of a port: lanes by HTB, lossless lanes by the qdisc ``vl``, and their counters."""
