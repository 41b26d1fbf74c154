"""How long do the flows of a workload file take on this fabric? For htsim's connection matrices and topology files."""
