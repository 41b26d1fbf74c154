"""Unmodified programs of users on hosts of a fabric: what they are told of each other, and as jobs of an experiment."""
