"""How many files per second does a metadata service make, look at, read and remove, and what limits it?"""
