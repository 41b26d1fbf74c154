"""Many runs as one study: a grid of settings times seeds, each run in a directory that is named by what it is.

Pure::

    config          the keys of a sweep's file
    planning        the runs that it asks for
    identity        what a run is named by
    tables          one table of all runs, and one of medians with intervals
    merging         an experiment's own tables over several runs
    figures         lines with intervals, a heat map, dots of each run
    tally           how many are done, and how long the rest will take

With effect::

    store           the directory: which runs are finished, which have failed
    study           runs what is missing, and writes what all runs say
    from_python     the same from Python, as one long frame
    executor        what runs runs: its interface
    local, slurm, ray_cluster    the three
"""
