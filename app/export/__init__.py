"""Results in the formats of other tools of the field.

Pure: they read a result's directory, and need neither Mininet nor a controller. A format is a module here, which is
loaded once it is asked for:

- :mod:`.openmetrics`: OpenMetrics, and Prometheus' own text format
- :mod:`.perfetto`: Perfetto's protobuf traces
- :mod:`.nccl_tests`: the table that nccl-tests prints of allreduces
- :mod:`.fio`: fio's JSON of reads and writes

:mod:`.choice` chooses phases and jobs, and says what a result has.
"""
