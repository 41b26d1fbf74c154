"""What the numbers of a run of ``libraries`` mean."""

from __future__ import annotations

from fabric.measures import Better, Measure

TIME = Measure(
    "<operation>.size_<bytes>.time_s", "time of an operation of this size, as the library measured it", Better.LESS
)
OVER_THEORY = Measure(
    "<operation>.size_<bytes>.time_over_theory",
    "that time over the one of full TCP segments on an idle path",
    Better.LESS,
)
MEASURES = (
    TIME,
    OVER_THEORY,
)
