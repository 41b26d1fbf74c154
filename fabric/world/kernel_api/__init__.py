"""How a run talks to its kernel.

netlink                      links, addresses, routes and queues as batches of rtnetlink messages
bpf, libbpf, struct_ops      BPF programs by bpf(2), in C by libbpf, as TCP congestion controls
modules                      the project's kernel modules
timeval                      timeouts of sockets
write_through                files that grow in a guest and are read on the host meanwhile
"""
