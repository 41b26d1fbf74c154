"""The storage service: the program in a storage node, its chunks, its disks, and targets that come back."""
