"""How long do the steps of recorded or generated jobs take on this fabric? Traces of other projects, as graphs."""
