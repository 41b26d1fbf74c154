"""Links that fail: as a config, as a schedule, and made to happen."""
