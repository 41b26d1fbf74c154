"""One run of an experiment, whichever: its config, the live fabric, its phases, its result."""
