"""Work of a job as a graph: what each rank computes, sends, receives and stores, and what each piece waits for.

- ``operations``: the kinds of operation; ``graph``: a graph of them, and what makes one; ``words`` for them;
  ``operation_names``: what names of operations say
- ``checks``: graphs that cannot end, told before they are played; ``loading``: graphs in files
- rules that checks and ranks share: ``progress``, when operations start; ``mailbox``, which receive a message is for;
  ``schedules``, how a collective is carried out
- ``job`` and ``kinds``: jobs that play graphs; ``placement`` of ranks, ``volumes`` of data, the ``warm_up``
- ``player``: the ranks' programs
- ``recording``: graphs of what unmodified programs did
- ``metrics``: what training is measured by, from rows; ``step_metrics``: what is exposed, idle and slack in a step,
  played or on paper; ``training_numbers`` of a job; ``accuracy``: steps to an accuracy, as users say them
"""
