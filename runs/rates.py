"""What ``--rate`` means: the settings that give a run's topology another rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fabric.config import setting
from fabric.errors import UsageError
from fabric.measure.carried_rates import Machine, carried_rate, this_machine
from fabric.units import format_rate, parse_rate_bps
from topologies.rates import at_nic_rate, shape

CALIBRATED = "calibrated"


def rate_settings(wanted: str, topology: Mapping[str, Any], settings: Sequence[str]) -> list[str]:
    """Return the settings that give a run's topology another rate: ``calibrated``, or one that is named.

    Raises UsageError if nothing was measured for this machine, or if ``settings`` set a rate, too.
    """
    if twice := [text for text in settings if text.startswith("topology.") and "rate=" in text]:
        raise UsageError(f"--rate {wanted} and --set {twice[0]}: both set rates; omit one of them")
    named = f"--rate {wanted}"
    rate_bps, source = _carried(topology) if wanted == CALIBRATED else (named_rate("--rate", wanted), named)
    return [setting("topology", at_nic_rate(topology, rate_bps)), setting("rates_from", source)]


def named_rate(option: str, text: str) -> int:
    """Return the rate that an option names, in bit/s. Raises UsageError."""
    try:
        rate_bps = int(text) if text.isdecimal() else parse_rate_bps(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from error
    if rate_bps < 1:
        raise UsageError(f"{option} {text}: is not a rate that frames can have; write it like '20 Mbit/s'")
    return rate_bps


def _carried(topology: Mapping[str, Any]) -> tuple[int, str]:
    machine: Machine = this_machine()
    found = carried_rate(shape(topology), machine)
    name = topology.get("name")
    if found is None:
        raise UsageError(
            f"--rate calibrated: {name} was not calibrated on this machine in its present state ({machine}); "
            f"run fabric calibrate {name}"
        )
    return found.nic_rate_bps, f"fabric calibrate, {found.measured_at}: {format_rate(found.nic_rate_bps)} on {machine}"
