"""Single flows: background load, fan-in, streams at a pace, probes that feel a blackout."""
