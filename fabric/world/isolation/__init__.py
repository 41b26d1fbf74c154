"""What a run has to itself of the machine, and what limits its processes.

netns, mounts, devices       network namespaces with host names, mounts, a private /dev
places, sysctl, limits       where things of the machine are found, kernel settings, open files
processes, priority          how processes end with their parent, and which go first
interrupts, listening        signals held back, sockets that wait for a peer
temporary                    directories that do not outlive who made them
"""
