"""What instructions read, by which a program that counts is told from one that computes: encodings beside assembly."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from fabric.world.virtual import kernel

HERE = Path(__file__).parent
NONE = -1
RAX, RCX, RBX, RSP, RBP, RSI, RDI = 0, 1, 3, 4, 5, 6, 7
KNOWN = {
    "add $1,%rax": ("4883c001", False, NONE, NONE),
    "adc $0,%rax": ("4883d000", True, NONE, NONE),
    "sbb %eax,%eax": ("19c0", True, NONE, NONE),
    "mov (%rdi,%rax,4),%eax": ("8b0487", False, RDI, RAX),
    "mov (%rdi),%eax": ("8b07", False, RDI, NONE),
    "mov 8(%rsp),%rax": ("488b442408", False, RSP, NONE),
    "mov 0x2f00(%rip),%eax": ("8b05002f0000", False, NONE, NONE),
    "mov 0x1000(,%rcx,8),%rax": ("488b04cd00100000", False, NONE, RCX),
    "mov %fs:0x10,%rax": ("64488b042510000000", False, NONE, NONE),
    "mov (%r12,%r9,1),%al": ("438a040c", False, 12, 9),
    "movzbl 0(%r13),%eax": ("410fb64500", False, 13, NONE),
    "lea 1(%rax),%rax": ("488d4001", False, NONE, NONE),
    "nopw 0(%rax,%rax,1)": ("660f1f440000", False, NONE, NONE),
    "incq 8(%rbx)": ("48ff4308", False, RBX, NONE),
    "lock cmpxchg %edx,(%rsi)": ("f00fb116", False, RSI, NONE),
    "test %eax,%eax": ("85c0", False, NONE, NONE),
    "je .-6": ("74f8", True, NONE, NONE),
    "jne far": ("0f8500010000", True, NONE, NONE),
    "sete %al": ("0f94c0", True, NONE, NONE),
    "cmovne (%rcx),%rax": ("480f4501", True, RCX, NONE),
    "loop .-4": ("e2fa", True, RCX, NONE),
    "jmp .-2": ("ebfc", False, NONE, NONE),
    "call far": ("e800000000", False, NONE, NONE),
    "rep stosb": ("f3aa", False, RSI, RDI),
    "cmpsb": ("a6", False, RSI, RDI),
    "xlat": ("d7", False, RBX, RAX),
    "pause": ("f390", False, NONE, NONE),
    "vmovdqu (%rdi,%rcx,1),%ymm0": ("c5fe6f040f", False, RDI, RCX),
    "vpcmpeqb (%r8),%ymm1,%ymm2": ("c4c17574 10".replace(" ", ""), False, 8, NONE),
    "vmovdqu64 (%rax),%zmm0": ("62f1fe486f00", False, RAX, NONE),
    "vzeroupper": ("c5f877", False, NONE, NONE),
    "pshufb (%rbp),%xmm0": ("660f38004500", False, RBP, NONE),
    "pushf": ("9c", True, NONE, NONE),
}


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler: apt-get install gcc libc6-dev")
def test_what_an_instruction_reads(tmp_path: Path) -> None:
    program = tmp_path / "instructions"
    command = ["cc", "-Wall", "-Werror", "-I", str(kernel.HERE), "-o", str(program), str(HERE / "instructions.c")]
    subprocess.run(command, check=True, timeout=60)
    lines = "\n".join(code for code, *_ in KNOWN.values())
    done = subprocess.run([str(program)], input=lines, capture_output=True, text=True, check=True, timeout=60)
    said = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    expected = [tuple(map(int, reads)) for _, *reads in KNOWN.values()]
    assert dict(zip(KNOWN, said, strict=True)) == dict(zip(KNOWN, expected, strict=True))
