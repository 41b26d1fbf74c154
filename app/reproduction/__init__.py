"""Published setups, run here: what was published, what theory says, and ours, on one page.

::

    cases/*.yaml    a setup each: its source, its numbers, and how it is run, or why it cannot be
    config          the keys of these files
    computed        what needs no run: counts of switches, balls in bins
    comparing       numbers beside each other, and which are outside their tolerance
    page            the page and its figure
"""
