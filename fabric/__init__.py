"""The fabric as a value, and the world that brings it to life: model, engine, queues, measuring, verdict, results."""
