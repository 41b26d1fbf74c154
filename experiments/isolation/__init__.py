"""What do training and storage cost each other in one shared queue, and what in lanes?"""
