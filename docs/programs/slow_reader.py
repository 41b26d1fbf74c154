"""A receiver that computes before it reads holds its sender back: 64 MiB do not fit into the buffers between them."""

import os
import socket
import time

SIZE = 64 << 20
PIECE = 4 << 20
BUSY_S = 0.002

rank, addresses = int(os.environ["RANK"]), os.environ["FABRIC_ADDRESSES"].split(",")
if rank == 0:
    while True:
        try:
            sock = socket.create_connection((addresses[1], 5000), 10)
            break
        except ConnectionRefusedError:
            time.sleep(0.001)
    sock.settimeout(None)
    began = time.monotonic()
    sock.sendall(bytes(SIZE))
    print(f"sent after {(time.monotonic() - began) * 1e3:.2f} ms", flush=True)
    time.sleep(0.01)  # What it computes once its data is away.
    sock.sendall(b".")
else:
    with socket.create_server((addresses[1], 5000)) as server:
        sock, _ = server.accept()
    began = time.monotonic()
    for _ in range(SIZE // PIECE):
        time.sleep(BUSY_S)
        left = PIECE
        while left:
            left -= len(sock.recv(left))
    sock.recv(1)
    print(f"had all after {(time.monotonic() - began) * 1e3:.2f} ms", flush=True)
