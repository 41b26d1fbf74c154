"""The tests of ``fabric validate``.

Pure::

    findings       a fault, a test's outcome
    links          faults from the wiring seen and the directions measured
    rounds         pairs of NICs in rounds of disjoint paths
    expectations   what flows should reach, alone and all at once
    blame          links that explain pairs that fell short
    injection      what --fault asks for

On a live fabric::

    validator      the tests in their order
    bench          what tests share: the fabric, its routes, programs, and whether the machine kept up
    link_tests     state, wiring, speed and loss
    load_tests     pairs, all-to-all, storage
"""
