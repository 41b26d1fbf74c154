"""How fast are HFReduce and NCCL over growing numbers of nodes, and is it the network that limits them?"""
