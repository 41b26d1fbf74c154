"""A list of jobs that share a cluster: played under policies, and what each makes of it.

::

    lists          jobs of a summary or a trace, made to fit a cluster
    measures       waits, use, lost work, fairness, by when each life had its nodes
    composed       the list played by the simulation, with given or measured costs; over loads and seeds
    listed_job     a job of the list as a user's program
    submissions    the list as jobs that users submit to the platform
    packets        when each life had its nodes on the platform, and what a suspend cost there
    bounds         how long a job waits at most where quotas limit those that come first
"""
