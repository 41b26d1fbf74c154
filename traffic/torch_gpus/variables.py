"""Variables by which ``fabric exec`` says which GPUs hosts have."""

GPU = "FABRIC_GPU"
"""Its name in the catalogue."""
COUNT = "FABRIC_GPUS"
"""How many a host has."""
VALUES = "FABRIC_GPU_VALUES"
"""What reads of values give: NAN for nan, 0 and False, else an error."""
NAN = "nan"
