"""What is wired to what: pure builders from a YAML file to a frozen fabric."""
