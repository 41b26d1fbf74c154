"""What libraries are played by: programs for a library's own Python, which has nothing of this package."""
