"""Calibrations of links, measured again where the machine disturbed them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from fabric.measure.fidelity import calibration_checks
from fabric.measure.verdict import Verdict
from fabric.model.lanes import Queueing
from fabric.records.calibration import LinkCalibration
from runs.attempts import Attempts, SetAside


def calibrated(
    queueing: Queueing,
    attempts: Attempts,
    origin: float,
    calibrate: Callable[[], Sequence[LinkCalibration]],
    tell: Callable[[str], None],
) -> list[LinkCalibration]:
    """Return the calibrations of all kinds of links that ``calibrate`` makes in real time, the last of those made.

    What feeds the links has to be in time, as switches have: where the machine kept it from that, a link seems slower
    than it is, and is measured again. A link that is slower than it says stays so, and fails each time. ``origin``: the
    run's time zero (``time.monotonic()``).
    """
    name = f"calibration, {queueing.words}"
    while True:
        began_s = time.monotonic() - origin
        found = list(calibrate())
        ended_s, checks = time.monotonic() - origin, calibration_checks(found)
        if not attempts.is_to_be_repeated(name, checks):
            attempts.count(ended_s - began_s)
            return found
        reasons = tuple(Verdict(tuple(checks)).reasons)
        attempts.set_aside.append(SetAside(name, attempts.number(name), began_s, ended_s, reasons))
        tell(f"links are calibrated again: {reasons[0]}")
