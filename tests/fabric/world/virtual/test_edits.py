"""Changes of the guest kernel's source, on excerpts of the kernels that differ where they go."""

from __future__ import annotations

import hashlib
import re
import subprocess
from itertools import chain
from pathlib import Path

import pytest

from fabric.world.virtual import edits
from fabric.world.virtual.edits import Edit, edits_of
from fabric.world.virtual.patch_files import Replacement, read_patch

SYSCALL = "arch/um/kernel/skas/syscall.c"
TIME = "arch/um/kernel/time.c"
TRAP = "arch/um/kernel/trap.c"
PROCESS = "arch/um/kernel/process.c"
VDSO = "arch/x86/um/vdso/vma.c"

RUN_AT_EVERY_CALL = (
    "\tif (time_travel_mode == TT_MODE_INFCPU ||\n\t    time_travel_mode == TT_MODE_EXTERNAL)\n\t\tschedule();\n\n"
    "\t/* Initialize the syscall number and default return value. */\n"
)
CALLED = "\t\tPT_REGS_SET_SYSCALL_RETURN(regs,\n\t\t\t\tEXECUTE_SYSCALL(syscall, regs));\n\nout:\n"
CALLS = {
    "6.12": (
        "\tif (syscall >= 0 && syscall < __NR_syscalls) {\n"
        "\t\tunsigned long ret = EXECUTE_SYSCALL(syscall, regs);\n\n"
        "\t\tif (IS_ERR_VALUE(ret) &&\n\t\t    INFCPU) {\n\t\t\tum_udelay(1);\n\t\t\tschedule();\n\t\t}\n\t}\n\nout:\n"
    ),
    "6.8": RUN_AT_EVERY_CALL + "\tif (syscall >= 0 && syscall < __NR_syscalls)\n" + CALLED,
    "5.15": RUN_AT_EVERY_CALL + "\tif (syscall >= 0 && syscall <= __NR_syscall_max)\n" + CALLED,
}
READINGS = {
    "6.7": "time_travel_update_time_rel(TIMER_MULTIPLIER);",
    "5.15": "time_travel_update_time(time_travel_time +\n\t\t\t\t\t\tTIMER_MULTIPLIER,\n\t\t\t\t\t\tfalse);",
}

FAULTS = {
    "6.12": "#endif\n\nout:\n\tmmap_read_unlock(mm);\n",
    "6.8": "#endif\n\tflush_tlb_page(vma, address);\nout:\n\tmmap_read_unlock(mm);\n",
}


FORKS = {
    "6.12": "\tif (src_vma->vm_flags & VM_SHARED)\n\t\tpte = pte_mkclean(pte);\n\tpte = pte_mkold(pte);\n\n",
    "6.8": "\tif (vm_flags & VM_SHARED)\n\t\tpte = pte_mkclean(pte);\n\tpte = pte_mkold(pte);\n\n",
}
RESUMED = {
    "6.12": "\twhile (1) {\n\t\ttime_travel_print_bc_msg();\n",
    "6.8": "\twhile (1) {\n\t\tif (kill_userspace_mm[0])\n\t\t\tfatal_sigsegv();\n",
}
RUNNING = "\tset_current(to);\n\tp->thread = (struct thread_struct) INIT_THREAD;\n"
FORKED = {
    "6.12": "\t\thandler = fork_handler;\n",
    "6.8": "\tforce_flush_all();\n\n\tschedule_tail(current);\n\t\thandler = fork_handler;\n",
}
VDSO_MADE = "static struct page **vdsop;\n\n\t*vdsop = um_vdso;\n"
VDSO_MAPPED = {"6.12": "\t\t&vdso_mapping);\n", "6.8": "\t\tvdsop);\n"}


def edit_of(subject: str, file: str) -> Edit:
    (found,) = [edit for edit in edits_of(subject) if edit.file == file]
    return found


SAVED = {
    "offloads": "if (bo && !list_empty(&flow_block_indr_dev_list)) {",
    "timers": "timer_handler(SIGALRM, NULL, mc ? &regs : &none);",
    "idle": "",
    "young": "",
    "copies": "\t\tflush_tlb_page(vma, vmf->address);\n",
    "code_model": "\tKBUILD_CFLAGS_MODULE += -mcmodel=large",
}
REGISTERS, IRQ_FLAGS, CLOCK_PAGE = map(edits_of, ("registers", "irq_flags", "clock_page"))
(YOUNG,) = edits_of("young")
HUGE_PAGES, PROFILE = map(edits_of, ("huge_pages", "profile"))


def fitting_texts() -> dict[str, str]:
    """Return, of each file, a text that its edit fits."""
    found: dict[str, dict[str, None]] = {}
    for edit in (*edits.EDITS, *chain(*edits.OPTIONAL)):
        found.setdefault(edit.file, {}).update(dict.fromkeys(part.old for part in edit.ways[0]))
    return {
        file: "\n".join(one for one in places if not any(one in other for other in places if other != one))
        for file, places in found.items()
    }


def fault_information() -> str:
    """Return how a fault is looked into in 6.1 to 6.12."""
    return "".join(
        (
            "static void get_skas_faultinfo(int pid, struct faultinfo *fi, unsigned long *aux_fp_regs)\n{\n",
            registers_of_a_fault("get", "save"),
            "\terr = ptrace(PTRACE_CONT, pid, 0, SIGSEGV);\n\twait_stub_done(pid);\n",
            registers_of_a_fault("put", "put"),
            "}\n",
        )
    )


def registers_of_a_fault(call: str, word: str) -> str:
    failed = f'\t\tprintk(UM_KERN_ERR "{word}_fp_registers returned %d\\n",\n\t\t       err);\n\t\tfatal_sigsegv();\n'
    return f"\terr = {call}_fp_registers(pid, aux_fp_regs);\n\tif (err < 0) {{\n{failed}\t}}\n"


def loop(version: str) -> str:
    """Return where a kernel lets a program go on, and takes over when it stops."""
    return "".join(
        (
            f"\tinterrupt_end();\n\n{RESUMED[version]}",
            "\t\tif (ptrace(PTRACE_SETREGS, pid, 0, regs->gp)) {\n\t\tif (put_fp_registers(pid, regs->fp)) {\n",
            "\t\tif (ptrace(PTRACE_GETREGS, pid, 0, regs->gp)) {\n\t\tif (get_fp_registers(pid, regs->fp)) {\n",
            "\t\tUPT_SYSCALL_NR(regs) = -1; /* Assume: It's not a syscall */\n",
            "\t\t\tpid = userspace_pid[0];\n\t\t\tinterrupt_end();\n",
        )
    )


@pytest.mark.parametrize("version", CALLS)
def test_each_call_is_counted_in_every_kernel_and_others_run_if_it_fails(version: str) -> None:
    changed = edit_of("syscalls", SYSCALL).apply(CALLS[version])
    counted = "time_travel_called(syscall, ret);"
    steps = ["EXECUTE_SYSCALL(syscall, regs)", counted, "IS_ERR_VALUE(ret)", "schedule();", "out:"]
    assert [changed.count(step) for step in steps] == [1] * len(steps)
    assert sorted(steps, key=changed.index) == steps
    assert "um_udelay" not in changed


@pytest.mark.parametrize("version", READINGS)
def test_reading_the_clock_is_charged_our_way_in_every_kernel(version: str) -> None:
    before = f"#include <asm/irq.h>\nstatic u64 timer_read(struct clocksource *cs)\n\t\t\t{READINGS[version]}\n"
    changed = edit_of("clock_readings", TIME).apply(edit_of("clock", TIME).apply(before))
    assert "TIMER_MULTIPLIER" not in changed
    assert changed.index("static void time_travel_clock_was_read(void)") < changed.index("static u64 timer_read(")


@pytest.mark.parametrize("version", FAULTS)
def test_what_lies_around_a_fault_is_mapped_with_it_in_every_kernel(version: str) -> None:
    before = "/*\n * Note this is constrained to return 0, -EFAULT, -EACCES, -ENOMEM by\n"
    changed = edit_of("faults", TRAP).apply(before + FAULTS[version])
    steps = ["static void map_around(", before, "\tmap_around(vma, address, flags);\n", "out:", "mmap_read_unlock"]
    assert [changed.count(step) for step in steps] == [1] * len(steps)
    assert sorted(steps, key=changed.index) == steps
    assert "flush_tlb_page" not in changed


@pytest.mark.parametrize("version", FORKS)
def test_a_new_process_has_its_parents_pages_as_touched_in_every_kernel(version: str) -> None:
    assert YOUNG.apply(FORKS[version]) == FORKS[version].replace("\tpte = pte_mkold(pte);\n", "")


@pytest.mark.parametrize("version", RESUMED)
def test_registers_are_set_once_a_stop_if_at_all_in_every_kernel(version: str) -> None:
    setting, loop_edit, stub = REGISTERS
    changed = loop_edit.apply(f"{fault_information()}void userspace(\n{loop(version)}")
    handled, _, resumed = changed.partition("static void get_skas_faultinfo(")[2].partition("void userspace(")
    assert "_fp_registers(" not in handled
    assert handled.index("wait_stub_done(pid);") < handled.index("registers_unknown(pid);")
    steps = ["interrupt_end();", "registers_unknown(pid);", "while (1)", "gp_registers_set(pid, regs->gp)"]
    steps += ["fp_registers_are(pid, regs->fp)", "put_fp_registers(", "gp_registers_get(pid, regs->gp)"]
    steps += ["get_fp_registers(", "fp_registers_were(", "registers_unknown(userspace_pid[0])"]
    assert sorted(steps, key=resumed.index) == steps
    assert "ptrace(PTRACE_" not in resumed
    for part in setting.ways[0][1:]:
        assert part.new == part.old.replace(
            "if (", "registers_unknown(pid);\n" + part.old.partition("if (")[0] + "if ("
        )
    called = stub.apply(
        "int ptrace_setregs(long pid, unsigned long *regs)\n\tif (ptrace(PTRACE_SETREGS, pid, 0, regs) < 0)\n"
    )
    assert called.index("\tgp_registers_unknown(pid);\n") < called.index("ptrace(PTRACE_SETREGS")


@pytest.mark.parametrize("file", [edit.file for edit in REGISTERS])
def test_registers_are_set_always_where_a_source_lacks_one_of_the_places(file: str) -> None:
    texts = fitting_texts()
    assert sum("registers_unknown" in text for text in edits.changed(texts).values()) == len(REGISTERS)
    assert edits.misfits({**texts, file: ""}) == []
    assert not any("registers_unknown" in text for text in edits.changed({**texts, file: ""}).values())


def test_what_waits_for_interrupts_is_seen_where_they_are_enabled_by_an_assignment() -> None:
    texts = fitting_texts()
    changed = edits.changed(texts)
    assert all("signals_pending" in changed[edit.file] for edit in IRQ_FLAGS)
    enabled = changed[IRQ_FLAGS[0].file]
    assert enabled.index("signals_enabled = flags;") < enabled.index("if (flags && signals_pending)")
    for edit in IRQ_FLAGS:
        lacking = edits.changed({**texts, edit.file: texts[edit.file].replace(edit.ways[0][0].old, "")})
        assert "signals_enabled = flags;" not in lacking.get(IRQ_FLAGS[0].file, "")


@pytest.mark.parametrize("version", FORKED)
def test_what_a_thread_shares_is_not_unmapped_again_in_kernels_that_do(version: str) -> None:
    before = RUNNING + FORKED[version]
    (threads,) = edits_of("threads")
    assert (threads.fitting(before) is None) == (version == "6.12")
    changed = edit_of("clock", PROCESS).apply(before if version == "6.12" else threads.apply(before))
    assert changed.count("\ttime_travel_runs(to);\n") == 1
    if version == "6.12":
        assert "shares_memory" not in changed
    else:
        assert "\tif (!current->thread.shares_memory)\n\t\tforce_flush_all();\n" in changed
        assert "p->thread.shares_memory = !!(clone_flags & CLONE_VM);" in changed


@pytest.mark.parametrize("version", VDSO_MAPPED)
def test_the_page_of_the_clock_is_mapped_with_the_vdso_in_every_kernel(version: str) -> None:
    changed = edit_of("clock_page", VDSO).apply(VDSO_MADE + VDSO_MAPPED[version])
    steps = ["struct time_travel_page {", "static int map_clock_page(", "\tmake_clock_page();\n", "map_clock_page(mm)"]
    assert [changed.count(step) for step in steps] == [1] * len(steps)
    assert sorted(steps, key=changed.index) == steps
    assert changed.index(VDSO_MAPPED[version]) < changed.index("map_clock_page(mm)")


@pytest.mark.parametrize("text", ["", CALLS["6.12"] * 2], ids=["nowhere", "twice"])
def test_a_source_without_the_place_for_a_change_is_told_with_the_file(text: str) -> None:
    fitting = fitting_texts()
    assert edits.misfits(fitting) == []
    assert edits.misfits({**fitting, SYSCALL: text}) == [SYSCALL]
    assert edits.misfits({file: kept for file, kept in fitting.items() if file != TIME}) == [TIME]
    with pytest.raises(ValueError, match=SYSCALL):
        edit_of("syscalls", SYSCALL).apply(text)


@pytest.mark.parametrize("subject", SAVED)
def test_what_only_saves_time_is_changed_where_the_source_lets_it_be(subject: str) -> None:
    texts = fitting_texts()
    (saving,) = edits_of(subject)
    made = edits.changed(texts)[saving.file]
    assert SAVED[subject] in made
    assert saving.ways[0][-1].old not in made
    without = {**texts, saving.file: texts[saving.file].replace(saving.ways[0][-1].old, "\t/* otherwise */\n")}
    assert edits.misfits(without) == []
    kept = edits.changed(without)
    assert {file for file, text in edits.changed(texts).items() if kept.get(file) != text} == {saving.file}
    assert SAVED[subject] == "" or SAVED[subject] not in kept.get(saving.file, "")


def test_timers_go_without_what_interrupts_need_in_virtual_time_only() -> None:
    texts = fitting_texts()
    changed = edits.changed(texts)[TIME]
    assert "\t\ttime_travel_tick(regs);\n\telse\n\t\tdo_IRQ(TIMER_IRQ, regs);\n" in changed
    assert changed.index("static void time_travel_tick(") < changed.index("void timer_handler(int sig,")
    without = {**texts, TIME: texts[TIME].replace("\tdo_IRQ(TIMER_IRQ, regs);\n", "")}
    assert edits.misfits(without) == []
    assert "time_travel_tick" not in edits.changed(without)[TIME]


def test_two_changes_of_one_file_are_both_made() -> None:
    changed = edits.changed(fitting_texts())[PROCESS]
    assert "time_travel_runs(to);" in changed and "os_getpid" not in changed


@pytest.mark.parametrize("file", [edit.file for edit in CLOCK_PAGE])
def test_the_clock_is_read_without_the_kernel_only_where_all_of_it_fits(file: str) -> None:
    def made_in(texts: dict[str, str]) -> set[str]:
        made = edits.changed(texts)
        return {file for file, marks in marks_of.items() if any(mark in made.get(file, "") for mark in marks)}

    texts = fitting_texts()
    marks_of = {
        edit.file: [
            line
            for part in edit.ways[0]
            for line in part.new.splitlines()
            if line and line not in part.old.splitlines()
        ]
        for edit in CLOCK_PAGE
    }
    assert made_in(texts) == marks_of.keys()
    assert edits.misfits({**texts, file: ""}) == []
    assert made_in({**texts, file: ""}) == set()


def test_huge_pages_are_asked_for_where_a_source_takes_both_changes_and_else_nowhere() -> None:
    texts = fitting_texts()
    process, pages = (edit.file for edit in HUGE_PAGES)
    made = edits.changed(texts)
    assert "void os_huge_pages(void *from, unsigned long length)\n{" in made[process]
    assert (
        "\tif (migratetype == MIGRATE_UNMOVABLE || migratetype == MIGRATE_RECLAIMABLE)\n\t\tos_huge_pages("
        in made[pages]
    )
    assert made[pages].index("static int __init huge_mem_map(void)") < made[pages].index(
        "void set_pageblock_migratetype("
    )
    for file in (process, pages):
        without = {**texts, file: "/* otherwise */\n"}
        assert edits.misfits(without) == []
        assert not any("os_huge_pages" in text for text in edits.changed(without).values())


PROFILES = "scripts/Makefile.lib"


def options_of(directory: str, tmp_path: Path, *lines: str, flags: str = "-fprofile-use") -> str:
    """Return what make, told ``flags``, compiles a file of a directory with, by the changed rules."""
    rules = edits.changed(fitting_texts())[PROFILES].partition("#\n# Enable gcov")[0]
    setting = "\n".join([f"obj := {directory}", "basetarget := some", *lines])
    (tmp_path / "Makefile").write_text(f"{setting}\n{rules}\nall:\n\t@echo $(_c_flags)\n")
    command = ["make", "--silent", "-C", str(tmp_path), f"{edits.PROFILE_FLAGS}={flags}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("directory", ["net/core", "net", "drivers/net", "kernel", "kernel/time", "arch/um/kernel"])
def test_what_frames_go_through_is_compiled_by_a_profile_if_one_is_asked_for(directory: str, tmp_path: Path) -> None:
    assert options_of(directory, tmp_path) == "-fprofile-use"
    assert options_of(directory, tmp_path, flags="") == ""


@pytest.mark.parametrize(
    "directory", ["arch/um/kernel/skas", "arch/x86/um/vdso", "arch/um/os-Linux", "scripts/mod", "/home/someone/net"]
)
def test_what_runs_in_processes_of_programs_or_on_the_host_is_not_profiled(directory: str, tmp_path: Path) -> None:
    assert options_of(directory, tmp_path) == ""


@pytest.mark.parametrize("line", ["GCOV_PROFILE := n", "GCOV_PROFILE_some.o := n", "part-of-module := y"])
def test_modules_and_what_the_kernel_keeps_from_being_profiled_are_not(line: str, tmp_path: Path) -> None:
    assert options_of("net/core", tmp_path, line) == ""


@pytest.mark.parametrize("file", [edit.file for edit in PROFILE])
def test_nothing_is_profiled_where_a_source_lacks_one_of_the_places(file: str) -> None:
    texts = fitting_texts()
    marks = (edits.PROFILE_FLAGS, edits.PROFILE_LIBRARY, "__gcov_dump")
    made = edits.changed(texts)
    assert all(any(mark in made[edit.file] for mark in marks) for edit in PROFILE)
    assert edits.misfits({**texts, file: ""}) == []
    assert not any(mark in text for text in edits.changed({**texts, file: ""}).values() for mark in marks)


PATCHES = sorted(edits.PATCHES.glob("*/*.patch"))


@pytest.mark.parametrize("path", PATCHES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_patch_is_of_a_subject_that_is_made_and_says_what_it_is(path: Path) -> None:
    licence, _, subject, _, why, *_ = path.read_text().split("\n")
    assert licence == "SPDX-License-Identifier: GPL-2.0-only"
    assert 10 < len(subject) < 120
    assert why
    assert path.stem in (*edits.NEEDED, *edits.SAVINGS, *edits.OTHERS)
    first = edits.PATCHES / edits.FIRST / path.name
    assert read_patch(path, edits.HERE).keys() <= read_patch(first, edits.HERE).keys()


def test_what_is_put_into_the_kernel_is_named_by_a_patch() -> None:
    """Each of the files that patches include is included by one, or by the library beside the kernel."""
    included = {name for path in PATCHES for name in re.findall(r'^\+#include "(\S+\.inc)"$', path.read_text(), re.M)}
    included |= set(re.findall(r'^#include "(\S+\.inc)"$', (edits.HERE / "host.c").read_text(), re.M))
    assert included == {path.name for path in edits.HERE.glob("*.inc")}


def test_of_the_versions_of_a_change_exactly_one_must_fit() -> None:
    edit = Edit("file", ((Replacement("one\n", "1\n"),), (Replacement("two\n", "2\n"),)))
    assert edit.apply("two\n") == "2\n"
    assert edit.fitting("one\ntwo\n") is None
    assert edit.fitting("none\n") is None
    assert edit.fitting("one\none\n") is None


def test_kernels_that_were_built_before_the_changes_were_patches_are_still_used() -> None:
    """They are of the same source, byte for byte. Whoever changes a patch or what it includes makes another kernel."""
    own = hashlib.sha256(repr((edits.EDITS, edits.OPTIONAL)).encode()).hexdigest()[:12]
    assert edits.digest() == edits.SAME_AS.get(own, own)
    assert len(set(edits.SAME_AS.values())) == len(edits.SAME_AS)


HEADERS_IN = ("Kbuild", "scripts/Makefile.lib")
MAKEFILE = """\
cmd = $(cmd_$(1))
CC = gcc
basename_flags = -DKBUILD_BASENAME='"one"'
modname_flags = -DKBUILD_MODNAME='"{name}"' -D__KBUILD_MODNAME=kmod_{name}
modkern_cflags = -DKBUILD_MODFILE='"{name}"'
depfile = {name}.d
LINUXINCLUDE = -Iinclude
c_flags = $(LINUXINCLUDE) $(modkern_cflags) $(basename_flags) $(modname_flags)
all:
\t$(CC) $(c_flags) -o {name} main.c && ./{name}
"""


def test_files_of_the_kernel_read_headers_that_are_compiled_and_have_names_of_their_own(tmp_path: Path) -> None:
    """The kernel's library does not: it has functions of its own in place of what headers define."""
    (tmp_path / "include/linux").mkdir(parents=True)
    (tmp_path / "include/linux/compiler_types.h").touch()
    header, own_names = tmp_path / "headers.h", edits.HERE / "own_names.h"
    header.write_text("#include <stdio.h>\nstatic inline void told(const char *name) { puts(name); }\n")
    (tmp_path / "main.c").write_text("int main(void)\n{\n\ttold(KBUILD_MODNAME);\n}\n")
    kbuild, flags = ("".join(part.old for part in edit_of("headers", file).ways[0]) for file in HEADERS_IN)
    kbuild, flags = (
        edit_of("headers", file).apply(text) for file, text in zip(HEADERS_IN, (kbuild, flags), strict=True)
    )

    def made(target: str, directory: str, name: str) -> str:
        makefile = MAKEFILE.format(name=name) + flags + kbuild
        command = ["make", "-s", "-f", "-", target, f"obj={directory}", f"HEADERS={header}", f"OWN_NAMES={own_names}"]
        command += [f"srctree={tmp_path}", "offsets-file="]
        return subprocess.run(command, input=makefile, cwd=tmp_path, text=True, capture_output=True, check=False).stdout

    made("prepare", ".", "none")
    header.write_text("#error is not read again\n")
    assert [made("all", "kernel/sched", name) for name in ("core", "fair")] == ["core\n", "fair\n"]
    assert made("all", "lib", "sort") == "", "which does not know told()"
