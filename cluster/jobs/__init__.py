"""Lists of jobs: traces that users have, and generators fitted to what is published of such traces.

::

    records       a job of a list: who, how many GPUs, when it was submitted, how long it ran, how it ended
    traces        readers of Acme's and Helios' CSV files, recognised by their header
    clusters      published summaries of four clusters (clusters.yaml)
    fitting       a generator with a summary's means, medians and shares
"""
