"""A run as a value: asked for, checked, started in namespaces or a guest of its own, and returned as a result."""
