"""How long do jobs that share a cluster wait, and what does time sharing cost them?"""
