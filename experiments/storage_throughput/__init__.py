"""How much of its storage nodes' NICs does a fabric deliver when all compute nodes read, and what limits it?"""
