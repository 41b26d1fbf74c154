"""What the numbers of a run of ``replay`` mean."""

from __future__ import annotations

from fabric.measures import Better, Measure

LINE_TIME = Measure("line_<line>_fct_s", "completion time of the flow of a line of the file", Better.LESS)
LINE_THEORY = Measure(
    "line_<line>_theory_s", "completion time of the flow of a line as a fluid with a max-min fair rate"
)
LINE_RATE = Measure("line_<line>_bps", "size of the flow of a line over its completion time", Better.MORE)
MEASURES = (
    Measure("flows", "flows of the matrix"),
    Measure("fct_p50_s", "completion time of a flow, median", Better.LESS, is_of_many=True),
    Measure("fct_p99_s", "99th percentile of the completion times of flows", Better.LESS, is_of_many=True),
    Measure("fct_max_s", "completion time of the slowest flow", Better.LESS),
    Measure("theory_p50_s", "completion time of a flow as a fluid with a max-min fair rate, median", is_of_many=True),
    Measure("theory_max_s", "completion time of the slowest flow as a fluid with a max-min fair rate"),
    Measure("worst_ratio", "completion time over that in theory, of the flow for which it is largest", Better.LESS),
    Measure("median_ratio", "completion time over that in theory, median over flows", Better.LESS, is_of_many=True),
    Measure("all_s", "from the first flow's start to the last one's end", Better.LESS),
    LINE_TIME,
    LINE_THEORY,
    LINE_RATE,
)
