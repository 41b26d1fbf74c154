"""Files on the storage of a run, by a program on one of its hosts: beside a job of kind ``files``."""

from traffic.storage.metadata.usrbio import FileError, mount

BLOCK, BLOCKS = 64 << 10, 16

with mount() as fs:
    fs.mkdir("/ckpt", makes_parents=True)
    data = bytes(range(256)) * (BLOCK * BLOCKS // 256)
    fd = fs.create("/ckpt/rank0.tmp")
    fs.write(fd, 0, data)
    print("length after fsync:", fs.fsync(fd))
    fs.close(fd)
    fs.rename("/ckpt/rank0.tmp", "/ckpt/rank0")
    print("files:", [entry.name for entry in fs.list("/ckpt")])

    # USRBIO: a ring of reads, in batches of up to 8.
    fd = fs.reg_fd(fs.open("/ckpt/rank0"))
    iov = fs.iovcreate(BLOCK * BLOCKS)
    ior = fs.iorcreate(entries=BLOCKS, for_read=True, io_depth=-8, timeout_s=0.001)
    for block in range(BLOCKS):
        at = block * BLOCK
        fs.prep_io(ior, iov[at : at + BLOCK], fd, at, userdata=block)
    fs.submit_ios(ior)
    done = fs.wait_for_ios(ior, most=BLOCKS, least=BLOCKS)
    print("reads:", len(done), "as written:", bytes(iov.memory) == data)

    fs.remove("/ckpt", is_recursive=True)
    try:
        fs.stat("/ckpt/rank0")
    except FileError as error:
        print("removed:", error.name)
