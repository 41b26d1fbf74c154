"""What numbers of a fabric with scaled rates are beside those of real systems. Pure.

A fabric may stand for one whose NICs are many times as fast (:attr:`fabric.model.network.Fabric.scale`). Of what the
network alone decides, rates are then so many times as low, and times as long; where a time is anything else, such as of
computing, nothing published can stand beside it.
"""

from __future__ import annotations

from fabric.model.network import Fabric


def true_rate(fabric: Fabric, rate: float) -> float:
    """Return a number per time, which the network alone decides, as it is at the true rate."""
    return rate * fabric.scale


def true_time(fabric: Fabric, time_s: float) -> float:
    """Return a time in seconds, which the network alone decides, as it is at the true rate."""
    return time_s / fabric.scale


def scale_words(fabric: Fabric) -> str:
    """Return what a note says of numbers at the true rate: ``, times the scale of 40,000``; nothing at that rate."""
    return "" if fabric.scale == 1 else f", times the scale of {fabric.scale:,.10g}"


def why_alone(fabric: Fabric) -> str | None:
    """Return why what is published is left out beside numbers that the network does not decide alone; None at the true
    rate."""
    if fabric.scale == 1:
        return None
    return (
        f"what is published is left out: rates here are 1 : {fabric.scale:,.10g} of the true ones, and times of "
        "computing are not; play at the true rate, with --engine virtual"
    )
