"""How do training jobs scale (HaiScale, arXiv 2408.14158v2, V): predicted from one run and communication here."""
