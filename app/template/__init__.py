"""The files of an experiment that `fabric new` writes."""
