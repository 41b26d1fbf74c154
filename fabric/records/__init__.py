"""What instruments report, as values: who judges, writes or reads a result needs these and no instrument."""
