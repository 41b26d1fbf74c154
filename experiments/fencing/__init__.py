"""Does a client read stale data from a storage node that has been forgotten, and does a fence prevent it?"""
