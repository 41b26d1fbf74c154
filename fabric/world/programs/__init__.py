"""Programs in hosts, and what they find there.

unfinished                   what users' programs do that have not ended
sent_bytes                   what each program sends by the NICs of its hosts
hosts                        what users' programs find on a host beside its network, and what starts them there
agents, forked               programs forked into hosts, and the process that forks them
packages, preload            Python packages known to them, C libraries preloaded into users' programs
guest_calls, relayed         functions, programs and sockets in other guests of a run
"""
