"""What the numbers of a run of ``expert_parallel`` mean."""

from __future__ import annotations

from fabric.measures import Better, Measure

SENT = Measure(
    "<phase>_Bps", "bytes that a rank sends per second of this phase, median over ranks and phases", Better.MORE
)
SLACK = Measure(
    "slack.<phase>_s", "time that this phase can take longer without delaying the step, the least", Better.MORE
)
MEASURES = (
    Measure("step_s", "time of a step at full size, median over steps", Better.LESS),
    Measure("played_step_s", "time of a step as it was played, at the size that was played", Better.LESS),
    Measure("exposed_s", "time of a step in which the slowest rank's computing waits for communication", Better.LESS),
    SENT,
    SLACK,
    Measure("published_step_s", "time of a step with all times as they were published"),
    Measure("nodes_per_token_count", "nodes that a token is sent to, mean"),
)
