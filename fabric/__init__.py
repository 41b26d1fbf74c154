"""The fabric as a value, and its emulation: model, engines, queues, measurement, verdict, results."""
