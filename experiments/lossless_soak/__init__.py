"""Does a lossless fabric lose a frame or a credit, or stand still for no reason, under random flows and cuts?"""
