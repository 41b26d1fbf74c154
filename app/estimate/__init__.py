"""What a fabric does with flows, without packets: they share links as fluids.

``jobs``
    what is asked: patterns over hosts, or a connection matrix, each in a lane
``patterns``
    which NIC sends to which, as arrays
``estimating``
    when the flows end, and how busy ports are
"""
