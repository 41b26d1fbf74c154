"""The same topology at other rates: all of its rates in proportion."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from fabric.errors import ConfigError
from fabric.units import parse_rate_bps

NIC_RATE = "nic_rate"
_RATES = (NIC_RATE, "uplink_rate", "rate")
"""The keys that are scaled, also in nested mappings; ``reference_nic_rate`` stays."""


def nic_rate_bps(topology: Mapping[str, Any]) -> int:
    """Return the rate of a topology's NICs. Raises ConfigError if it has none."""
    try:
        return parse_rate_bps(topology[NIC_RATE])
    except (KeyError, ValueError) as error:
        raise ConfigError("topology", [f"{NIC_RATE}: {error}"]) from error


def at_nic_rate(topology: Mapping[str, Any], rate_bps: int) -> dict[str, Any]:
    """Return a topology with NICs of that rate and all other rates in proportion. Raises ConfigError."""
    factor = Fraction(rate_bps, nic_rate_bps(topology))
    return _with_rates(topology, lambda rate: round(parse_rate_bps(rate) * factor))


def shape(topology: Mapping[str, Any]) -> str:
    """Return a value equal for topologies that differ by a common factor of rates only. Raises ConfigError."""
    whole = nic_rate_bps(topology)
    relative = _with_rates(topology, lambda rate: str(Fraction(parse_rate_bps(rate), whole)))
    del relative["name"]
    return hashlib.sha256(json.dumps(relative, sort_keys=True).encode()).hexdigest()[:16]


def _with_rates(mapping: Mapping[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in mapping.items():
        if isinstance(value, Mapping):
            found[key] = _with_rates(value, change)
        elif isinstance(value, list):
            found[key] = [_with_rates(one, change) if isinstance(one, Mapping) else one for one in value]
        else:
            found[key] = change(value) if key in _RATES else value
    return found
