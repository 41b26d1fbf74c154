"""BPF programs in C: compiled by clang, put into the kernel by libbpf, which fits them to its types (BTF).

The sources are in ``fabric/kernel/bpf``. An object serves every kernel and is built once for each version of them.
What is simple enough, :mod:`fabric.world.kernel_api.bpf` assembles itself, without any of this.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import platform
import shutil
import struct
import subprocess
from functools import cache as once
from pathlib import Path
from typing import Any

from fabric.errors import EmulationError
from fabric.world import cache
from fabric.world.kernel_api import bpf
from fabric.world.kernel_api.modules import SOURCE

PROGRAMS = SOURCE / "bpf"
"""Where the sources are."""
_LIBRARY = "libbpf.so.1"
_BTF = Path("/sys/kernel/btf/vmlinux")
_JIT = Path("/proc/sys/net/core/bpf_jit_enable")
_HEADERS = Path("/usr/include/bpf/bpf_core_read.h")
_FIRST_RELEASE = (6, 4)
"""Since then a congestion control made of BPF programs can be held by a descriptor, and ends with who holds it."""
_FIRST_WITH_LINKS = (1, 2)
"""The version of libbpf that makes such a descriptor itself."""
_BPF_F_LINK = 1 << 13
_LINK_CREATE, _STRUCT_OPS = 28, 44
_BUILD_TIMEOUT_S = 60
_PACKAGES = "apt-get install clang libbpf-dev"
_MESSAGE_BYTES = 1024
_PRINT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)


def why_not() -> str | None:
    """Return why this machine cannot have such programs, with what would mend it; None: it can."""
    release = platform.release()
    if _number(release) < _FIRST_RELEASE:
        return f"BPF programs need Linux {'.'.join(map(str, _FIRST_RELEASE))} or newer, and this is {release}"
    if not _BTF.exists():
        return "this kernel does not describe its types to BPF programs (CONFIG_DEBUG_INFO_BTF)"
    if _JIT.exists() and _JIT.read_text().strip() == "0":
        return "BPF programs are not compiled on this machine; sysctl net.core.bpf_jit_enable=1"
    try:
        _library()
    except OSError:
        return f"the library {_LIBRARY} is not installed; {_PACKAGES}"
    if shutil.which("clang") is None or not _HEADERS.exists():
        return f"BPF programs need a compiler of their own, which is not installed; {_PACKAGES}"
    return None


def _number(release: str) -> tuple[int, ...]:
    words = release.replace("-", ".").split(".")[:2]
    return tuple(int(word) for word in words if word.isdigit())


def version(directory: Path = PROGRAMS) -> str:
    """Return what tells these sources from those of another version, in 8 hexadecimal digits."""
    digest = hashlib.sha256()
    for path in sorted({*PROGRAMS.glob("*.[ch]"), *directory.glob("*.[ch]"), *SOURCE.glob("dcqcn*.[ch]")}):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:8]


def build(name: str, directory: Path = PROGRAMS) -> Path:
    """Return the object of ``NAME.bpf.c`` in a directory, built now unless it has been.

    A map that the source calls ``HOSTS`` gets the name :func:`hosts_map`. Raises EmulationError with clang's words.
    """
    final = cache.own() / "bpf" / f"{name}-{version(directory)}.o"
    if final.exists():
        return final
    final.parent.mkdir(parents=True, exist_ok=True)
    partial = final.with_suffix(f".{os.getpid()}.{os.urandom(4).hex()}")
    flags = ["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror"]
    names = [f"-I{PROGRAMS}", f"-DHOSTS={hosts_map(name)}"]
    command = ["clang", *flags, *names, *_headers(), "-c", str(directory / f"{name}.bpf.c"), "-o", str(partial)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_BUILD_TIMEOUT_S, check=False)
    except FileNotFoundError as error:
        raise EmulationError(f"building the BPF programs {name}: clang is not installed; {_PACKAGES}") from error
    except subprocess.TimeoutExpired as error:
        raise EmulationError(f"building the BPF programs {name}: not done after {_BUILD_TIMEOUT_S} s") from error
    if done.returncode != 0:
        ending = "\n".join(done.stderr.splitlines()[-15:])
        raise EmulationError(f"building the BPF programs {name} failed, {_PACKAGES} if headers are missing:\n{ending}")
    partial.replace(final)
    return final


def _headers() -> list[str]:
    """Return the flags that let clang find the headers of this machine, which it does not for another target."""
    machine = {"x86_64": "x86", "aarch64": "arm64", "riscv64": "riscv", "ppc64le": "powerpc", "s390x": "s390"}
    directory = Path(f"/usr/include/{platform.machine()}-linux-gnu")
    return [f"-D__TARGET_ARCH_{machine.get(platform.machine(), platform.machine())}", f"-I{directory}"]


def hosts_map(name: str) -> str:
    """Return the name of the map by which the programs of ``NAME.bpf.c`` know hosts: no other version has it."""
    return f"{name}_{version()}"


@once
def _library() -> Any:
    library = ctypes.CDLL(_LIBRARY, use_errno=True)
    for function in ("bpf_object__open_file", "bpf_map__attach_struct_ops"):
        getattr(library, function).restype = ctypes.c_void_p
    for function in ("bpf_object__find_map_by_name", "bpf_object__find_program_by_name"):
        getattr(library, function).restype = ctypes.c_void_p
        getattr(library, function).argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    for function in ("bpf_object__load", "bpf_object__close", "bpf_map__fd", "bpf_program__fd", "bpf_link__fd"):
        getattr(library, function).argtypes = [ctypes.c_void_p]
    library.bpf_map__attach_struct_ops.argtypes = [ctypes.c_void_p]
    library.bpf_map__set_map_flags.argtypes = [ctypes.c_void_p, ctypes.c_uint32]
    return library


class Loaded:
    """The programs and maps of an object in the kernel. They live for as long as a descriptor, of theirs or of what
    uses them, is open; :meth:`close` closes only those of this object itself.

    Raises EmulationError with libbpf's words, in which the kernel's verifier has its say.
    """

    def __init__(self, name: str, registers: str | None = None, directory: Path = PROGRAMS) -> None:
        """Load ``NAME.bpf.c``; ``registers``: its map of a set of operations that are to be registered."""
        self._c = _library()
        self._name = name
        self._said: list[str] = []
        self._listener = _PRINT(self._hear)
        self._c.libbpf_set_print(self._listener)
        self._object: int | None = self._c.bpf_object__open_file(bytes(build(name, directory)), None)
        if not self._object:
            raise self._error("opening")
        try:
            if registers is not None:
                self._c.bpf_map__set_map_flags(self._find("map", registers), _BPF_F_LINK)
            if self._c.bpf_object__load(self._object) != 0:
                raise self._error("loading")
        except BaseException:
            self.close()
            raise

    def _hear(self, level: int, template: bytes, arguments: int) -> int:
        """Keep what libbpf says, except for what only its developers want to know."""
        if level < 2:
            text = ctypes.create_string_buffer(_MESSAGE_BYTES)
            ctypes.CDLL(None).vsnprintf(text, ctypes.c_size_t(_MESSAGE_BYTES), template, ctypes.c_void_p(arguments))
            self._said.append(text.value.decode(errors="replace").strip())
        return 0

    def _error(self, doing: str) -> EmulationError:
        reason = os.strerror(ctypes.get_errno())
        return EmulationError(f"{doing} the BPF programs {self._name}: {reason}\n" + "\n".join(self._said[-15:]))

    def _find(self, kind: str, name: str) -> int:
        found: int | None = getattr(self._c, f"bpf_object__find_{kind}_by_name")(self._object, name.encode())
        if found is None:
            raise EmulationError(f"the BPF programs {self._name} have no {kind} {name}; is the cache damaged?")
        return found

    def map(self, name: str) -> int:
        """Return a new descriptor of a map."""
        return _duplicate(self._c.bpf_map__fd(self._find("map", name)))

    def program(self, name: str) -> int:
        """Return a new descriptor of a program."""
        return _duplicate(self._c.bpf_program__fd(self._find("program", name)))

    def register(self, name: str) -> int:
        """Register a set of operations; return the descriptor whose end ends that."""
        link = self._c.bpf_map__attach_struct_ops(self._find("map", name))
        if not link:
            raise self._error(f"registering {name} of")
        if (self._c.libbpf_major_version(), self._c.libbpf_minor_version()) >= _FIRST_WITH_LINKS:
            return _duplicate(self._c.bpf_link__fd(link))
        handle = self._c.bpf_map__fd(self._find("map", name))
        return bpf.call(_LINK_CREATE, struct.pack("=IIII", handle, 0, _STRUCT_OPS, 0), f"registering {name}")

    def close(self) -> None:
        """Close the descriptors of this object."""
        self._c.libbpf_set_print(None)
        if self._object:
            self._c.bpf_object__close(self._object)
            self._object = None


def _duplicate(descriptor: int) -> int:
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 0)
