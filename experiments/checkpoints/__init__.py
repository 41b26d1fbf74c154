"""How fast do nodes write checkpoints, what binds, what do steps of training lose, and is what is restored the same?"""
