"""Lossless lanes that stand still: who waits for whom, why, since when, and who suffers."""
