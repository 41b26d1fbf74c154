"""Beside ever more traffic of others, what is left to HFReduce and to storage, and is it what lanes promise?"""
