"""Changes of the guest kernel's source, beyond what kernel options can express.

Kernels differ, so a change may be written in several ways; exactly one of them must fit a source. Whether a source fits
is determined from the few files concerned, before anything is built (:func:`misfits`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Replacement:
    """``new`` in place of ``old``, which must be in the file exactly once."""

    old: str
    new: str


Way = tuple[Replacement, ...]
"""One way to write a change: all of its replacements together."""


@dataclass(frozen=True)
class Edit:
    """A change of one file of the kernel's source, in as many ways as there are kernels that differ there."""

    file: str
    ways: tuple[Way, ...]

    def fitting(self, text: str) -> Way | None:
        """Return the first way that fits the file's text, None: none does."""
        return next((way for way in self.ways if all(text.count(part.old) == 1 for part in way)), None)

    def apply(self, text: str) -> str:
        """Return the changed text. Raises ValueError if no way fits."""
        way = self.fitting(text)
        if way is None:
            raise ValueError(f"{self.file} has no place for a change of ours")
        for part in way:
            text = text.replace(part.old, part.new)
        return text


def _edit(file: str, *replacements: tuple[str, str]) -> Edit:
    """Return an edit that is written in one way."""
    return Edit(file, (_way(*replacements),))


def _way(*replacements: tuple[str, str]) -> Way:
    return tuple(Replacement(old, new) for old, new in replacements)


_TIME_HEADER = "arch/um/include/linux/time-internal.h"
_TIME = "arch/um/kernel/time.c"
_SCHEDULER_HEADER = "include/net/sch_generic.h"
_IN_VIRTUAL_TIME = "(time_travel_mode == TT_MODE_INFCPU || time_travel_mode == TT_MODE_EXTERNAL)"
_SCHEDULED_AT_EVERY_CALL = (
    "\tif (time_travel_mode == TT_MODE_INFCPU ||\n\t    time_travel_mode == TT_MODE_EXTERNAL)\n\t\tschedule();\n\n"
)
_MAPPED_AROUND = "\tmap_around(vma, address, flags);\n\tif (mm->context.id.kill)\n\t\tforce_sig(SIGKILL);\nout:\n"
_BEFORE_FAULTS = "/*\n * Note this is constrained to return 0, -EFAULT, -EACCES, -ENOMEM by\n"
_CALLED = "\t\tPT_REGS_SET_SYSCALL_RETURN(regs,\n\t\t\t\tEXECUTE_SYSCALL(syscall, regs));\n"
_CALLED_AND_FAILED = (
    "\t{\n\t\tunsigned long ret = EXECUTE_SYSCALL(syscall, regs);\n\n\t\tPT_REGS_SET_SYSCALL_RETURN(regs, ret);\n"
    f"\t\tif (IS_ERR_VALUE(ret) && {_IN_VIRTUAL_TIME}) {{\n"
    "\t\t\ttime_travel_call_failed();\n\t\t\tschedule();\n\t\t}\n\t}\n"
)

EDITS = (
    # The clock in ns, not in steps of 256 ns, and timers as fine: a full frame takes 168 ns at 200 Gbit/s.
    _edit(
        _TIME_HEADER,
        (
            "#define TIMER_MULTIPLIER 256",
            "void time_travel_call_failed(void);\n"
            "struct task_struct;\nvoid time_travel_runs(struct task_struct *task);\n"
            "#define TIMER_MULTIPLIER 1",
        ),
        ("#define TIMER_MIN_DELTA  500", "#define TIMER_MIN_DELTA  1"),
    ),
    _edit(
        "arch/um/include/asm/processor-generic.h",
        (
            "struct thread_struct {\n",
            "struct time_travel_in_vain {\n\tunsigned long waits;\n\tunsigned int failures, readings;\n};\n\n"
            "struct thread_struct {\n\tstruct time_travel_in_vain in_vain;\n",
        ),
    ),
    Edit(
        _TIME,
        tuple(
            _way(
                (reading, "time_travel_clock_was_read();"),
                ("static u64 timer_read(", (HERE / "clock.c.inc").read_text() + "static u64 timer_read("),
                ("#include <asm/irq.h>\n", "#include <asm/irq.h>\n#include <asm/unistd.h>\n"),
            )
            for reading in (
                "time_travel_update_time_rel(TIMER_MULTIPLIER);",
                # Before October 2023 (6.7; in stable kernels, too).
                "time_travel_update_time(time_travel_time +\n\t\t\t\t\t\tTIMER_MULTIPLIER,\n\t\t\t\t\t\tfalse);",
            )
        ),
    ),
    _edit("arch/um/kernel/process.c", ("\tset_current(to);\n", "\tset_current(to);\n\ttime_travel_runs(to);\n")),
    # A system call that fails takes 1 ns instead of 1 us, in which timers were late and no frame got further.
    Edit(
        "arch/um/kernel/skas/syscall.c",
        (
            _way(("um_udelay(1);", "time_travel_call_failed();")),
            # Before August 2024 (6.12; in stable kernels, too): no call took time, and each let others run first.
            _way((_SCHEDULED_AT_EVERY_CALL, ""), (_CALLED, _CALLED_AND_FAILED)),
        ),
    ),
    # What lies around a page that a program touches is mapped with it: most of what starting programs costs is faults.
    Edit(
        "arch/um/kernel/trap.c",
        tuple(
            _way((_BEFORE_FAULTS, (HERE / "fault.c.inc").read_text() + _BEFORE_FAULTS), (mapped, mapped_around))
            for mapped, mapped_around in (
                ("\tflush_tlb_page(vma, address);\nout:\n", _MAPPED_AROUND),
                # Since July 2024 (6.11) what was changed is remembered where it is, and mapped all at once.
                ("#endif\n\nout:\n", "#endif\n\tmap_around(vma, address, flags);\nout:\n"),
            )
        ),
    ),
    # Rates that are right within far less than the 0.3 % by which whole ns miss them at 200 Gbit/s.
    _edit(
        _SCHEDULER_HEADER,
        (
            "static inline u64 psched_l2t_ns(",
            (HERE / "rate.h.inc").read_text() + "static inline u64 psched_l2t_ns(",
        ),
        (
            "return ((u64)len * r->mult) >> r->shift;",
            "return ((u64)len * r->mult + psched_fraction(r->shift)) >> r->shift;",
        ),
    ),
    # A frame that has left a host is no longer charged to its sender's socket, as a NIC has it. TCP sends on only while
    # little of a connection waits on the host ("small queues"), and would else count what waits anywhere in the fabric.
    _edit(
        "drivers/net/veth.c",
        ("\tskb_tx_timestamp(skb);\n", "\tif (skb->sk)\n\t\tskb_orphan(skb);\n\tskb_tx_timestamp(skb);\n"),
    ),
    # The same for jitter before a host's own queue (queues.jitter): what waits there is still its sender's. What is on
    # its way on a link with a delay is not, as the kernel has it.
    _edit(
        "net/sched/sch_netem.c",
        ("if (q->latency || q->jitter || q->rate)\n\t\tskb_orphan", "if (q->latency > q->jitter)\n\t\tskb_orphan"),
    ),
    # TCP's shortest timers are two ticks long: 20 ms as it is, 2 ms like this.
    _edit("arch/um/Kconfig", ("config HZ\n\tint\n\tdefault 100\n", "config HZ\n\tint\n\tdefault 1000\n")),
)

OFFLOADS = _edit(
    "net/core/flow_offload.c",
    (
        "\tif (bo) {\n\t\tif (bo->command == FLOW_BLOCK_BIND)\n\t\t\tindir_dev_add(",
        "\tif (bo && !list_empty(&flow_block_indr_dev_list)) {\n"
        "\t\tif (bo->command == FLOW_BLOCK_BIND)\n\t\t\tindir_dev_add(",
    ),
)
"""Made where it fits, so that large fabrics come up faster: nothing need be known of each class of HTB for hardware
that takes work off the kernel, which no guest has. The kernel looks through all that it knows for each new class."""


def files() -> list[str]:
    """Return the files of the kernel's source that are changed, or may be."""
    return [edit.file for edit in (*EDITS, OFFLOADS)]


def changed(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the changed files; ``texts`` holds those of :func:`files`. Raises ValueError if one of EDITS misfits."""
    fitting = OFFLOADS.file in texts and OFFLOADS.fitting(texts[OFFLOADS.file]) is not None
    return {edit.file: edit.apply(texts[edit.file]) for edit in (*EDITS, *([OFFLOADS] if fitting else []))}


def misfits(texts: Mapping[str, str]) -> list[str]:
    """Return the files that cannot be changed as needed, or are missing; ``texts`` holds those of :func:`files`."""
    return [edit.file for edit in EDITS if edit.file not in texts or edit.fitting(texts[edit.file]) is None]


def digest() -> str:
    """Return what tells these edits from other ones."""
    return hashlib.sha256(repr((EDITS, OFFLOADS)).encode()).hexdigest()[:12]
