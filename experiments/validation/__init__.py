"""What ``fabric validate`` computes: pairs and rounds, what they should reach, and which links are to blame. Pure.

::

    findings       a fault, a test's outcome
    links          faults from the wiring seen and the directions measured
    rounds         pairs of NICs in rounds of disjoint paths
    expectations   what flows should reach, alone and all at once
    blame          links that explain pairs that fell short
    injection      what --fault asks for
"""
