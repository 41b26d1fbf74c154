"""What does a KV cache on storage read, write, remove and save, and what can one client have of it?"""
