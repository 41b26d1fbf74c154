"""What is left of an allreduce when a NIC's link fails: the question, its config, its summary and its figure."""
