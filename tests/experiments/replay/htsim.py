"""Workload files of htsim, as github.com/Broadcom/csg-htsim has them in sim/datacenter.

Copyright (c) 2018, University College London; 2018, University Politehnica of Bucharest; 2023, Broadcom. BSD 2-Clause
License: ``BSD-2-Clause.txt`` beside this file.
"""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent
PERMUTATION = HERE / "perm_16n_16c_2MB.cm"
INCAST = HERE / "incast.cm"
LEAF_SPINE = HERE / "leaf_spine_tiny.topo"
