"""Routes as values: what switches are to do, computed from a fabric without one running."""
