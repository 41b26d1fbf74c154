"""What does a link that flaps cost training and storage, and which repair makes it small?"""
