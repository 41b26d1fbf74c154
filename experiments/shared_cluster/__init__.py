"""What do jobs that share a fabric cost each other, and which ports do they share?"""
