"""What does a full port do to a flow that does not use it, with losses and without, in one lane and in two?"""
