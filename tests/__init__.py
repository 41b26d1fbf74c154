"""Tests: a package, for scripts in worlds and guests import from it, and a library brings another one of its name."""
