"""Changes of the guest kernel's source, beyond what kernel options can express.

Kernels differ, so a change may be written in several ways; exactly one of them must fit a source. Whether a source fits
is determined from the few files concerned, before anything is built (:func:`misfits`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
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


def _read(name: str) -> str:
    return (HERE / name).read_text()


_TIME_HEADER = "arch/um/include/linux/time-internal.h"
_TIME = "arch/um/kernel/time.c"
_SCHEDULER_HEADER = "include/net/sch_generic.h"
_IN_VIRTUAL_TIME = "(time_travel_mode == TT_MODE_INFCPU || time_travel_mode == TT_MODE_EXTERNAL)"
_PAGE = _read("clock_page.h.inc")
_DROPS_ALL = "\t/* Do not fool qdisc_drop_all() */\n"
_READINGS = "static u64 timer_read("
_CLOCK = _PAGE + _read("clock.c.inc") + _read("polling.c.inc")
_SCHEDULED_AT_EVERY_CALL = (
    "\tif (time_travel_mode == TT_MODE_INFCPU ||\n\t    time_travel_mode == TT_MODE_EXTERNAL)\n\t\tschedule();\n\n"
)
_RUNS = ("\tset_current(to);\n", "\tset_current(to);\n\ttime_travel_runs(to);\n")
_BORN = "\tp->thread = (struct thread_struct) INIT_THREAD;\n"
_READS_ON = (
    _BORN,
    f"{_BORN}\tp->thread.in_vain.read = current->thread.in_vain.read;\n"
    "\tp->thread.in_vain.counter = current->thread.in_vain.counter;\n"
    "\tp->thread.in_vain.of_host = current->thread.in_vain.of_host;\n",
)
_MAPPED_AROUND = "\tmap_around(vma, address, flags);\n\tif (mm->context.id.kill)\n\t\tforce_sig(SIGKILL);\nout:\n"
_BEFORE_FAULTS = "/*\n * Note this is constrained to return 0, -EFAULT, -EACCES, -ENOMEM by\n"
_CALLED = "\t\tPT_REGS_SET_SYSCALL_RETURN(regs,\n\t\t\t\tEXECUTE_SYSCALL(syscall, regs));\n"
_COUNTED = f"\t\tif ({_IN_VIRTUAL_TIME[1:-1]})\n\t\t\ttime_travel_called(syscall, ret);\n"
_CALLED_AND_COUNTED = (
    "\t{\n\t\tunsigned long ret = EXECUTE_SYSCALL(syscall, regs);\n\n\t\tPT_REGS_SET_SYSCALL_RETURN(regs, ret);\n"
    f"{_COUNTED}\t\tif (IS_ERR_VALUE(ret) && {_IN_VIRTUAL_TIME})\n\t\t\tschedule();\n\t}}\n"
)
_IF_FAILED = "\t\tif (IS_ERR_VALUE(ret) &&"

EDITS = (
    # The clock in ns, not in steps of 256 ns, and timers as fine: a full frame takes 168 ns at 200 Gbit/s.
    _edit(
        _TIME_HEADER,
        (
            "#define TIMER_MULTIPLIER 256",
            "void time_travel_called(int call, unsigned long result);\n"
            "struct task_struct;\nvoid time_travel_runs(struct task_struct *task);\n"
            "#define TIMER_MULTIPLIER 1",
        ),
        ("#define TIMER_MIN_DELTA  500", "#define TIMER_MIN_DELTA  1"),
    ),
    _edit(
        "arch/um/include/asm/processor-generic.h",
        (
            "struct thread_struct {\n",
            "struct time_travel_in_vain {\n\tunsigned long waits;\n"
            "\tunsigned int failures, lookups, readings, cpu_readings, counter_readings, calls, in_a_row;\n"
            "\tunsigned int sent_readings;\n\tbool polls, sleeps, of_host, sent;\n"
            "\tunsigned long long read, counter, polled, called, sent_at;\n};\n\n"
            "struct thread_struct {\n\tstruct time_travel_in_vain in_vain;\n\tint shares_memory;\n",
        ),
    ),
    Edit(
        _TIME,
        tuple(
            _way(
                (reading, "time_travel_clock_was_read();"),
                (_READINGS, _CLOCK + _READINGS),
                ("#include <asm/irq.h>\n", "#include <asm/irq.h>\n#include <asm/unistd.h>\n"),
            )
            for reading in (
                "time_travel_update_time_rel(TIMER_MULTIPLIER);",
                # Before October 2023 (6.7; in stable kernels, too).
                "time_travel_update_time(time_travel_time +\n\t\t\t\t\t\tTIMER_MULTIPLIER,\n\t\t\t\t\t\tfalse);",
            )
        ),
    ),
    Edit(
        "arch/um/kernel/process.c",
        (
            # A new thread's memory is its process's, and in order. To unmap all that is not there once more, area by
            # area, took a quarter of the CPU of programs that start threads.
            _way(
                _RUNS,
                _READS_ON,
                ("\tforce_flush_all();\n", "\tif (!current->thread.shares_memory)\n\t\tforce_flush_all();\n"),
                (
                    "\t\thandler = fork_handler;\n",
                    "\t\thandler = fork_handler;\n\t\tp->thread.shares_memory = !!(clone_flags & CLONE_VM);\n",
                ),
            ),
            # Since July 2024 (6.11) nothing is mapped in a new process.
            _way(_RUNS, _READS_ON),
        ),
    ),
    _edit(
        "arch/um/kernel/exec.c",
        ("void start_thread(", "void time_travel_starts(void);\n\nvoid start_thread("),
        ("\tPT_REGS_IP(regs) = eip;\n", "\ttime_travel_starts();\n\tPT_REGS_IP(regs) = eip;\n"),
    ),
    # A system call that fails takes no time instead of 1 us, in which timers were late and no frame got further. Its
    # program sleeps if it polls.
    Edit(
        "arch/um/kernel/skas/syscall.c",
        (
            _way((_IF_FAILED, f"{_COUNTED}{_IF_FAILED}"), ("\t\t\tum_udelay(1);\n", "")),
            # Before August 2024 (6.12; in stable kernels, too): no call took time, and each let others run first.
            _way((_SCHEDULED_AT_EVERY_CALL, ""), (_CALLED, _CALLED_AND_COUNTED)),
        ),
    ),
    # What lies around a page that a program touches is mapped with it: most of what starting programs costs is faults.
    Edit(
        "arch/um/kernel/trap.c",
        tuple(
            _way((_BEFORE_FAULTS, _read("fault.c.inc") + _BEFORE_FAULTS), (mapped, mapped_around))
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
            _read("rate.h.inc") + "static inline u64 psched_l2t_ns(",
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
    # The same for a link's delay: what waits for the rate of its own NIC is its sender's, what is on its way is not.
    _edit(
        "net/sched/sch_netem.c",
        ("\tstruct Qdisc\t*qdisc;\n", "\tstruct Qdisc\t*qdisc;\n\tstruct qdisc_skb_head on_the_way;\n"),
        (
            "static int netem_enqueue(",
            "static int netem_enqueue_below(struct sk_buff *skb, struct Qdisc *sch, struct sk_buff **to_free);\n\n"
            "static int netem_enqueue(",
        ),
        (
            _DROPS_ALL,
            "\tif (q->qdisc && !q->jitter)\n\t\treturn netem_enqueue_below(skb, sch, to_free);\n\n" + _DROPS_ALL,
        ),
        ("if (q->latency || q->jitter || q->rate)", "if (!q->qdisc && (q->latency || q->jitter || q->rate))"),
        ("tabledist(q->latency, q->jitter,", "tabledist(q->qdisc ? q->jitter : q->latency, q->jitter,"),
        (
            "static struct sk_buff *netem_dequeue(",
            _read("netem.c.inc") + "static struct sk_buff *netem_dequeue(",
        ),
        ("tfifo_dequeue:\n", "\tif (q->qdisc)\n\t\treturn netem_dequeue_below(sch);\n\ntfifo_dequeue:\n"),
        ("\t\tqdisc_reset(q->qdisc);\n", "\t\tqdisc_reset(q->qdisc);\n\t__qdisc_reset_queue(&q->on_the_way);\n"),
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

TIMERS = _edit(
    "arch/um/os-Linux/signal.c",
    (
        "\tstruct uml_pt_regs regs;\n\n\tif (mc != NULL)\n",
        "\tstatic struct uml_pt_regs none;\n\tstruct uml_pt_regs regs;\n\n\tif (mc != NULL)\n",
    ),
    (
        "\telse\n\t\tmemset(&regs, 0, sizeof(regs));\n\ttimer_handler(SIGALRM, NULL, &regs);\n",
        "\ttimer_handler(SIGALRM, NULL, mc ? &regs : &none);\n",
    ),
)
"""Made where it fits, so that timers cost less: each cleared room for all registers anew."""

IDLE = _edit(
    "arch/um/kernel/process.c",
    ("\tcpu_tasks[current_thread_info()->cpu].pid = os_getpid();\n", ""),
)
"""Made where it fits, so that events cost less: before each, the idle task asked the host for the number of its own
process. Kernels from 6.12 on do not."""

_BARRIER = '\tasm volatile("" : : : "memory");\n'
_WAITS = "\t\tlist_add_tail(&e->list, &time_travel_irqs);\n"
_NO_LONGER_WAITS = "\twhile ((e = list_first_entry_or_null(&time_travel_irqs,\n"
_KNOWN_TO_MODULES = "EXPORT_SYMBOL(signals_enabled);\n"
IRQ_FLAGS = (
    _edit(
        "arch/um/include/asm/irqflags.h",
        # Kernels with several cores do not have this line.
        ("extern int signals_enabled;\n", "extern int signals_enabled;\nextern unsigned int signals_pending;\n\n"),
        (
            "\tum_set_signals(flags);\n",
            f"{_BARRIER}\tif ((unsigned long)signals_enabled == flags)\n\t\treturn;\n"
            f"\tsignals_enabled = flags;\n{_BARRIER}"
            "\tif (flags && signals_pending) {\n\t\tsignals_enabled = 0;\n\t\tunblock_signals();\n\t}\n",
        ),
        ("\tblock_signals();\n", f"\tsignals_enabled = 0;\n{_BARRIER}"),
    ),
    _edit(
        "arch/um/os-Linux/signal.c",
        ("static unsigned int signals_pending;\n", "unsigned int signals_pending;\n"),
    ),
    _edit(
        "arch/um/kernel/ksyms.c",
        (_KNOWN_TO_MODULES, f"{_KNOWN_TO_MODULES}EXPORT_SYMBOL(signals_pending);\n"),
    ),
    # What waits there is no signal, and has a bit of its own.
    _edit(
        _TIME,
        (_WAITS, f"{_WAITS}\t\tsignals_pending |= 1U << 31;\n"),
        (_NO_LONGER_WAITS, f"\tsignals_pending &= ~(1U << 31);\n{_NO_LONGER_WAITS}"),
    ),
)
"""Made where all fit, so that what is done with interrupts off costs less: a few assignments instead of two calls."""

YOUNG = _edit("mm/memory.c", ("\tpte = pte_mkold(pte);\n", ""))
"""Made where it fits, so that starting programs costs less: a new process reads what its parent has without a fault for
each page. What counts as not yet touched, the host keeps from being read."""

_COPY_IS_SET = "\t\tset_pte_at_notify(mm, vmf->address, vmf->pte, entry);\n"
COPIES = _edit(
    "mm/memory.c",
    (
        "\t\tptep_clear_flush_notify(vma, vmf->address, vmf->pte);\n",
        "\t\tptep_get_and_clear(mm, vmf->address, vmf->pte);\n",
    ),
    (
        f"{_COPY_IS_SET}\t\tupdate_mmu_cache(vma, vmf->address, vmf->pte);\n",
        f"{_COPY_IS_SET}\t\tflush_tlb_page(vma, vmf->address);\n",
    ),
)
"""Made where it fits, so that a page that is copied as it is written costs less: its process maps the copy in place of
the page and does not unmap the page first. Kernels from 6.11 on do so."""

_LOOP = "arch/um/os-Linux/skas/process.c"
REGISTERS = (
    _edit(
        "arch/x86/um/os-Linux/registers.c",
        ("int save_i387_registers(", _read("registers.c.inc") + "int save_i387_registers("),
        (
            "\tif (ptrace(PTRACE_SETFPREGS, pid, 0, fp_regs) < 0)\n",
            "\tregisters_unknown(pid);\n\tif (ptrace(PTRACE_SETFPREGS, pid, 0, fp_regs) < 0)\n",
        ),
        (
            "\t\tif (ptrace(PTRACE_SETREGSET, pid, NT_X86_XSTATE, &iov) < 0)\n",
            "\t\tregisters_unknown(pid);\n\t\tif (ptrace(PTRACE_SETREGSET, pid, NT_X86_XSTATE, &iov) < 0)\n",
        ),
    ),
    _edit(
        _LOOP,
        (
            "static void get_skas_faultinfo(",
            "int fp_registers_are(int pid, const unsigned long *registers);\n"
            "void fp_registers_were(int pid, const unsigned long *registers);\n"
            "long gp_registers_get(int pid, unsigned long *registers);\n"
            "long gp_registers_set(int pid, unsigned long *registers);\n"
            "void registers_unknown(int pid);\n\nstatic void get_skas_faultinfo(",
        ),
        (
            "\terr = get_fp_registers(pid, aux_fp_regs);\n\tif (err < 0) {\n"
            '\t\tprintk(UM_KERN_ERR "save_fp_registers returned %d\\n",\n'
            "\t\t       err);\n\t\tfatal_sigsegv();\n\t}\n",
            "",
        ),
        (
            "\terr = put_fp_registers(pid, aux_fp_regs);\n\tif (err < 0) {\n"
            '\t\tprintk(UM_KERN_ERR "put_fp_registers returned %d\\n",\n'
            "\t\t       err);\n\t\tfatal_sigsegv();\n\t}\n",
            "\tregisters_unknown(pid);\n",
        ),
        (
            "\tinterrupt_end();\n\n\twhile (1) {\n",
            "\tinterrupt_end();\n\tregisters_unknown(pid);\n\n\twhile (1) {\n",
        ),
        (
            "\t\tUPT_SYSCALL_NR(regs) = -1; /* Assume",
            "\t\tfp_registers_were(pid, regs->fp);\n\t\tUPT_SYSCALL_NR(regs) = -1; /* Assume",
        ),
        (
            "\t\t\tpid = userspace_pid[0];\n",
            "\t\t\tif (pid != userspace_pid[0])\n\t\t\t\tregisters_unknown(userspace_pid[0]);\n"
            "\t\t\tpid = userspace_pid[0];\n",
        ),
        (
            "\t\tif (put_fp_registers(pid, regs->fp)) {\n",
            "\t\tif (!fp_registers_are(pid, regs->fp) && put_fp_registers(pid, regs->fp)) {\n",
        ),
        ("ptrace(PTRACE_SETREGS, pid, 0, regs->gp)", "gp_registers_set(pid, regs->gp)"),
        ("ptrace(PTRACE_GETREGS, pid, 0, regs->gp)", "gp_registers_get(pid, regs->gp)"),
    ),
    _edit(
        "arch/x86/um/ptrace_user.c",
        ("int ptrace_setregs(", "void gp_registers_unknown(int pid);\n\nint ptrace_setregs("),
        (
            "\tif (ptrace(PTRACE_SETREGS, pid, 0, regs) < 0)\n",
            "\tgp_registers_unknown(pid);\n\tif (ptrace(PTRACE_SETREGS, pid, 0, regs) < 0)\n",
        ),
    ),
)
"""Made where all fit, so that calls and faults of programs cost less: each set all registers, changed or not, and a
fault those of floating point twice."""

TICKS = _edit(
    _TIME,
    ("#include <asm/irq.h>\n", "#include <asm/irq.h>\n#include <asm/irq_regs.h>\n"),
    ("void timer_handler(int sig,", _read("tick.c.inc") + "void timer_handler(int sig,"),
    (
        "\tdo_IRQ(TIMER_IRQ, regs);\n",
        f"\tif {_IN_VIRTUAL_TIME}\n\t\ttime_travel_tick(regs);\n\telse\n\t\tdo_IRQ(TIMER_IRQ, regs);\n",
    ),
)
"""Made where it fits, so that timers cost less: they go without what only interrupts of hardware need."""

CODE_MODEL = _edit(
    "arch/um/Makefile",
    (
        "\tKBUILD_CFLAGS += -mcmodel=large\n",
        "\tKBUILD_CFLAGS_KERNEL += -mcmodel=small -fbuiltin\n\tKBUILD_CFLAGS_MODULE += -mcmodel=large -fbuiltin\n",
    ),
)
"""Made where it fits, so that code is smaller. The kernel lies below 2 GB, only modules do not: it needs no address of
64 bits for each call and variable. Short copies are instructions, not calls, as in a kernel for hardware."""

_LONG_BYTES = 512


def _by_string_instruction(function: str) -> Edit:
    return Edit(
        f"arch/x86/lib/{function}_64.S",
        tuple(
            _way((patched, f"\tcmpq ${_LONG_BYTES}, %rdx\n\tjb {function}_orig\n"))
            for patched in (
                f'\tALTERNATIVE_2 "jmp {function}_orig", "", X86_FEATURE_REP_GOOD, \\\n'
                f'\t\t      "jmp {function}_erms", X86_FEATURE_ERMS\n',
                # Since January 2023 (6.4).
                f'\tALTERNATIVE "jmp {function}_orig", "", X86_FEATURE_FSRM\n',
                f'\tALTERNATIVE "jmp {function}_orig", "", X86_FEATURE_FSRS\n',
            )
        ),
    )


LONG_COPIES = tuple(map(_by_string_instruction, ("memcpy", "memset")))
"""Made where they fit, so that data is copied faster: what is long, by the instruction for strings, as the kernel does
on hardware. There it replaces a jump as it boots, which one that is a program does not."""

SAVINGS = (OFFLOADS, TIMERS, IDLE, YOUNG, COPIES, TICKS, CODE_MODEL, *LONG_COPIES)
"""Each made where it fits: they change what a guest costs, not what it does."""

_OF_THE_KERNEL = (
    "\tif (migratetype == MIGRATE_UNMOVABLE || migratetype == MIGRATE_RECLAIMABLE)\n"
    "\t\tos_huge_pages(page_address(pfn_to_page(page_to_pfn(page) & -pageblock_nr_pages)),\n"
    "\t\t\t      pageblock_nr_pages << PAGE_SHIFT);\n"
)
_PAGES_BY_NUMBER = (
    "static int __init huge_mem_map(void)\n{\n"
    "\tos_huge_pages(mem_map, max_mapnr * sizeof(*mem_map));\n\treturn 0;\n}\nearly_initcall(huge_mem_map);\n\n"
)
_BLOCK_BECOMES = "void set_pageblock_migratetype(struct page *page, int migratetype)\n{\n"
_BLOCK_BECAME = "\t\t\t\tpage_to_pfn(page), MIGRATETYPE_MASK);\n}\n\n#ifdef CONFIG_DEBUG_VM\n"

HUGE_PAGES = (
    _edit(
        "arch/um/os-Linux/process.c",
        ("int os_drop_memory(", _read("huge_pages.c.inc") + "int os_drop_memory("),
    ),
    _edit(
        "mm/page_alloc.c",
        (
            _BLOCK_BECOMES,
            f"void os_huge_pages(void *from, unsigned long length);\n\n{_PAGES_BY_NUMBER}{_BLOCK_BECOMES}",
        ),
        (_BLOCK_BECAME, _BLOCK_BECAME.replace("}\n", f"{_OF_THE_KERNEL}}}\n", 1)),
    ),
)
"""Made where all fit, so that large fabrics cost less: the host holds the kernel's own memory in pages of 2 MiB."""

CLOCK_PAGE = (
    _edit(
        "arch/x86/um/vdso/um_vdso.c",
        ("#include <asm/unistd.h>\n", "#include <asm/unistd.h>\n\n" + _PAGE + _read("clock_read.c.inc")),
        (
            '\tlong ret;\n\n\tasm("syscall"\n\t\t: "=a" (ret)\n\t\t: "0" (__NR_clock_gettime)',
            "\tunsigned long long ns;\n\tlong ret;\n\n"
            "\tif (time_travel_read(clock, &ns)) {\n"
            "\t\tts->tv_sec = ns / 1000000000;\n\t\tts->tv_nsec = ns % 1000000000;\n\t\treturn 0;\n\t}\n\n"
            '\tasm volatile("syscall"\n\t\t: "=a" (ret)\n\t\t: "0" (__NR_clock_gettime)',
        ),
    ),
    _edit(
        "arch/x86/um/vdso/vdso-layout.lds.S",
        (
            "\t. = VDSO_PRELINK + SIZEOF_HEADERS;\n",
            "\t. = VDSO_PRELINK;\n\ttime_travel_page = . - 4096;\n\t. = VDSO_PRELINK + SIZEOF_HEADERS;\n",
        ),
    ),
    Edit(
        "arch/x86/um/vdso/vma.c",
        tuple(
            _way(
                ("static struct page **vdsop;\n", "static struct page **vdsop;\n\n" + _PAGE + _read("clock_vma.c.inc")),
                ("\t*vdsop = um_vdso;\n", "\t*vdsop = um_vdso;\n\tmake_clock_page();\n"),
                mapped,
            )
            for mapped in (
                ("\t\tvdsop);\n", "\t\tvdsop);\n\tif (!err)\n\t\terr = map_clock_page(mm);\n"),
                # Since August 2024 (6.12).
                (
                    "\t\t&vdso_mapping);\n",
                    "\t\t&vdso_mapping);\n\tif (!IS_ERR(vma) && map_clock_page(mm))\n\t\tvma = ERR_PTR(-ENOMEM);\n",
                ),
            )
        ),
    ),
    _edit(
        "arch/um/include/shared/kern_util.h",
        (
            "extern void interrupt_end(void);\n",
            "extern void interrupt_end(void);\n"
            "extern void time_travel_to_user(void);\nextern void time_travel_from_user(void);\n",
        ),
    ),
    _edit(
        "arch/um/os-Linux/skas/process.c",
        (
            "\t\tif (ptrace(PTRACE_SETREGS, pid, 0, regs->gp)) {\n",
            "\t\ttime_travel_to_user();\n\t\tif (ptrace(PTRACE_SETREGS, pid, 0, regs->gp)) {\n",
        ),
        (
            "\t\tUPT_SYSCALL_NR(regs) = -1; /* Assume",
            "\t\ttime_travel_from_user();\n\t\tUPT_SYSCALL_NR(regs) = -1; /* Assume",
        ),
    ),
)
"""Made where all of them fit: programs read the clock without a system call."""

_REFUSED = "\t\t\tcase SIGSEGV:\n\t\t\t\tif (PTRACE_FULL_FAULTINFO) {\n"
_NEW_PROCESS = "\tflags = CLONE_FILES | SIGCHLD;\n"
COUNTER = (
    _edit(_TIME, (_READINGS, _read("counter.c.inc") + _READINGS)),
    _edit(
        _LOOP,
        ("#include <sched.h>\n", "#include <sched.h>\n#include <sys/prctl.h>\n"),
        (
            "#include <sysdep/stub.h>\n",
            "#include <sysdep/stub.h>\n#include <timetravel.h>\n\n"
            "bool time_travel_counter_was_read(struct uml_pt_regs *regs);\n",
        ),
        (
            _NEW_PROCESS,
            f"\tif ({_IN_VIRTUAL_TIME[1:-1]})\n\t\tprctl(PR_SET_TSC, PR_TSC_SIGSEGV);\n{_NEW_PROCESS}",
        ),
        (
            _REFUSED,
            _REFUSED.replace(
                "\n",
                "\n\t\t\t\tif (si.si_code == SI_KERNEL && time_travel_counter_was_read(regs))\n\t\t\t\t\tbreak;\n",
                1,
            ),
        ),
    ),
    # The kernel's own process is refused the counter, too. Else the host would set a control register whenever it and a
    # program take turns: on a virtual machine calls took twice as long. The C library reads the clock by the counter.
    _edit(
        "arch/um/os-Linux/time.c",
        ("#include <sys/time.h>\n", "#include <sys/syscall.h>\n#include <sys/time.h>\n"),
        ("\tclock_gettime(CLOCK_REALTIME, ", "\tsyscall(SYS_clock_gettime, CLOCK_REALTIME, "),
        ("\tclock_gettime(CLOCK_MONOTONIC,&ts);", "\tsyscall(SYS_clock_gettime, CLOCK_MONOTONIC, &ts);"),
    ),
    _edit(
        "arch/um/kernel/um_arch.c",
        (
            '\tseq_printf(m, "mode\\t\\t: skas\\n");\n',
            '\tseq_printf(m, "cpu MHz\\t\\t: 1000.000\\n");\n\tseq_printf(m, "mode\\t\\t: skas\\n");\n',
        ),
    ),
)
"""Made where all of them fit: the time stamp counter of programs counts virtual time."""

_SLEEPS = "static inline void\ntime_travel_set_event_fn("
PEERS = (
    _edit(
        _TIME_HEADER,
        ("\tbool pending, onstack;\n", "\tbool pending, onstack;\n\tunsigned int arrival;\n"),
        (_SLEEPS, _read("peers.h.inc") + _SLEEPS),
    ),
    _edit(
        _TIME,
        (
            "static void __time_travel_update_time(",
            "void os_wait_a_moment(void);\n\n" + _read("peers.c.inc") + "static void __time_travel_update_time(",
        ),
        (
            "\telse\n\t\ttime_travel_set_time(ns);\n",
            "\telse if (time_travel_may_go(ns))\n\t\ttime_travel_set_time(ns);\n",
        ),
    ),
    _edit(
        "arch/um/os-Linux/time.c",
        (
            "/**\n * os_idle_sleep() - sleep until interrupted\n",
            _read("peers_wait.c.inc") + "/**\n * os_idle_sleep() - sleep until interrupted\n",
        ),
    ),
)
"""Made where all of them fit: several guests play one run."""


PROFILE_FLAGS = "PROFILE_FLAGS"
"""The variable of make that holds the compiler's options for what is profiled."""
PROFILE_LIBRARY = "PROFILE_LIBRARY"
"""And the one that names the compiler's library for profiles, where one is taken."""
COMPILED_BY = "scripts/Makefile.lib"
PROFILED = ("arch/um/kernel", "drivers/net/%", "fs/%", "kernel/%", "lib/%", "mm/%", "net/%")
"""The directories that are profiled, as make's patterns; of UML not that with code that runs in programs' processes."""

_BEFORE_GCOV = "#\n# Enable gcov profiling flags for a file, directory or for all files depending\n"
_LIBRARIES = '\t\tldlibs="-lutil -lrt -lpthread"\n'
_AT_THE_END = '\tos_info("\\n");\n\t/* Reboot */\n'
PROFILE = (
    _edit(
        COMPILED_BY,
        (
            _BEFORE_GCOV,
            f"ifneq ($(and $({PROFILE_FLAGS}),$(filter {' '.join(PROFILED)},$(obj) $(obj)/)),)\n"
            f"_c_flags += $(if $(part-of-module)$(filter n,$(GCOV_PROFILE) $(GCOV_PROFILE_$(basetarget).o)),,"
            f"$({PROFILE_FLAGS}))\nendif\n\n{_BEFORE_GCOV}",
        ),
    ),
    _edit("scripts/link-vmlinux.sh", (_LIBRARIES, _LIBRARIES.replace('"\n', f' ${{{PROFILE_LIBRARY}}}"\n'))),
    # The compiler's library would do so itself, if the kernel ended as other programs do.
    _edit(
        "arch/um/os-Linux/main.c",
        ("int __init main(", "extern void __gcov_dump(void) __attribute__((weak));\n\nint __init main("),
        (_AT_THE_END, f"\tif (__gcov_dump)\n\t\t__gcov_dump();\n{_AT_THE_END}"),
    ),
)
"""Made where all of them fit: the kernel can be built by a profile of itself."""

OPTIONAL = (*((edit,) for edit in SAVINGS), IRQ_FLAGS, HUGE_PAGES, CLOCK_PAGE, COUNTER, REGISTERS, PEERS, PROFILE)
"""Groups of changes; each is made where all of it fits."""


def files() -> list[str]:
    """Return the files of the kernel's source that are changed, or may be."""
    return list(dict.fromkeys(edit.file for edit in (*EDITS, *chain(*OPTIONAL))))


def changed(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the changed files; ``texts`` holds those of :func:`files`. Raises ValueError if one of EDITS misfits."""
    fitting = [group for group in OPTIONAL if not _misfitting(group, texts)]
    made: dict[str, str] = {}
    for edit in (*EDITS, *chain(*fitting)):
        made[edit.file] = edit.apply(made.get(edit.file, texts.get(edit.file, "")))
    return made


def misfits(texts: Mapping[str, str]) -> list[str]:
    """Return the files that cannot be changed as needed, or are missing; ``texts`` holds those of :func:`files`."""
    return _misfitting(EDITS, texts)


def _misfitting(edits: Iterable[Edit], texts: Mapping[str, str]) -> list[str]:
    return [edit.file for edit in edits if edit.file not in texts or edit.fitting(texts[edit.file]) is None]


def digest() -> str:
    """Return what tells these edits from other ones."""
    return hashlib.sha256(repr((EDITS, OPTIONAL)).encode()).hexdigest()[:12]
