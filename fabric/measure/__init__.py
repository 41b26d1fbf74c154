"""What is measured of a run, and whether it is to be believed."""
