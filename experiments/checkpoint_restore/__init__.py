"""How long does a restore of a checkpoint by all nodes at once take, and what does request-to-send do about it?"""
