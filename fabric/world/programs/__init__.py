"""Programs in hosts, and what they find there.

agents, forked               programs forked into hosts, and the process that forks them
packages, preload            Python packages known to them, C libraries preloaded into users' programs
guest_calls, relayed         functions, programs and sockets in other guests of a run
"""
