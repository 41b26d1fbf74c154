"""What does it cost to bring a storage node up to date that comes back, and who pays?"""
