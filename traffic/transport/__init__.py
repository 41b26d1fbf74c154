"""What carries data between programs.

::

    connection   where programs listen, and what their connections carry
    tcp          the kernel's TCP
    sampling     what connections say of themselves, in a series
    carrier      whether a NIC's link works
"""
