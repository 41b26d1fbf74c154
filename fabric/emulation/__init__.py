"""A fabric made real: hosts, links and switches of this world's kernel."""

from __future__ import annotations

from fabric.pythons_distutils import load_pythons_distutils

load_pythons_distutils()  # Before any module here imports Mininet.
