"""What fails, how often, and where: rates from published tables or a user's file, drawn by a seed.

::

    *.csv, *.yaml    published tables: Fire-Flyer 2's, Llama 3's, RSC-1's and RSC-2's, and where they are from
    classes          a class of faults, a table of them, its file
    published        the tables above as values
    drawing          faults of a time on given nodes, links and switches
    entries          faults as lines of ``failures:`` of a run's config
"""
