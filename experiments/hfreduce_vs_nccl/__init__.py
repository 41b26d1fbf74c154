"""HFReduce, with and without NVLink, and NCCL over growing numbers of nodes: how fast, and what limits them?"""
