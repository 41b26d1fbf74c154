"""The commands by name: what help says of them, in which group and with which examples, and where their code is."""

from __future__ import annotations

from typing import NamedTuple

RUN = "Run"
FABRIC = "Bring a fabric up"
RESULTS = "Look at results"
TOPOLOGIES = "Topologies"
CLUSTER = "A cluster"
MACHINE = "This machine"


class Command(NamedTuple):
    """A command: what ``fabric --help`` says of it, where, the module of :mod:`app.commands` that has it, the
    function of that which gives its parser options, and examples of use."""

    help: str
    group: str
    module: str
    function: str = "add_options"
    examples: tuple[str, ...] = ()


COMMANDS = {
    "list": Command(
        "list the experiments with their questions",
        RUN,
        "listing",
        "add_list_options",
        ("fabric list", "fabric list --json"),
    ),
    "keys": Command(
        "list the keys of an experiment's config, with type, limits, default and meaning",
        RUN,
        "keys",
        examples=("fabric keys isolation", "fabric keys isolation queues.lanes"),
    ),
    "run": Command(
        "run an experiment: its answer, its verdict, and a directory with figures",
        RUN,
        "run",
        examples=(
            "fabric run isolation",
            "fabric run head_of_line",
            "fabric run isolation --set queues.lanes.storage.share=0.2 --seed 3",
            "fabric run isolation --set topology=my.yaml --out results/mine",
            "fabric run isolation --repeat 6",
        ),
    ),
    "new": Command(
        "write a folder with an experiment that runs, to be changed into your own",
        RUN,
        "new",
        examples=("fabric new my_question",),
    ),
    "sweep": Command(
        "run a grid of settings times seeds; only what is missing is run",
        RUN,
        "sweep",
        examples=(
            "fabric sweep shares.yaml",
            "fabric sweep shares.yaml --commands",
            "fabric sweep shares.yaml --on slurm",
        ),
    ),
    "replay": Command(
        "play traces and workload files of other projects: GOAL, Chakra, PyTorch, SimAI, MSCCL, htsim",
        RUN,
        "replay",
        examples=(
            "fabric replay 'ddp.*.et' --topology fat_tree_k4",
            "fabric replay step.goal other.goal --topology fat_tree_k4 --placement spread",
            "fabric replay t.cm --topology fat_tree_k4",
        ),
    ),
    "trace": Command(
        "count what is in traces of other projects, or write one as GOAL or Chakra",
        RUN,
        "trace",
        examples=(
            "fabric trace show 'ddp.*.et' --groups groups.json",
            "fabric trace show resnet50.et.gz --ranks 8 --json",
            "fabric trace write goal ring.xml --size 16MiB --out ring.goal",
        ),
    ),
    "reproduce": Command(
        "published setups: what was published, what theory says, and ours",
        RUN,
        "reproduce",
        examples=("fabric reproduce --list", "fabric reproduce --quick"),
    ),
    "exec": Command(
        "run an unmodified program on hosts of a fabric",
        FABRIC,
        "exec_program",
        examples=(
            "fabric exec fire_flyer_2_tiny z0h000 -- ping -c 3 z0h001",
            "fabric exec fire_flyer_2_small --background z0h003='iperf3 -s' z0h000 -- iperf3 -c z0h003 -t 5",
            "fabric exec head_of_line_200g z0h000 -- ip addr",
        ),
    ),
    "shell": Command(
        "a fabric with Mininet's prompt",
        FABRIC,
        "shell",
        examples=("fabric shell fire_flyer_2_tiny", "fabric shell head_of_line --queueing lossless"),
    ),
    "validate": Command(
        "test links, bandwidth and storage of a fabric; exit code 1 if it has faults",
        FABRIC,
        "validate",
        examples=(
            "fabric validate fire_flyer_2_tiny",
            "fabric validate fire_flyer_2_tiny --fault 'link z0l00-z0s00 loss 0.01'",
        ),
    ),
    "view": Command(
        "an interactive page to look into results, as a file or served",
        RESULTS,
        "view",
        examples=("fabric view results/isolation-1", "fabric view results/isolation-1 --serve --port 8000"),
    ),
    "report": Command(
        "write a result as one self-contained page",
        RESULTS,
        "results",
        "add_report_options",
        ("fabric report results/isolation-1",),
    ),
    "plot": Command(
        "draw the figures of a result", RESULTS, "results", "add_plot_options", ("fabric plot results/isolation-1",)
    ),
    "compare": Command(
        "compare the metrics of results",
        RESULTS,
        "results",
        "add_compare_options",
        ("fabric compare results/a results/b", "fabric compare results/a results/b --changed 5"),
    ),
    "timeline": Command(
        "write a result as a trace for Perfetto and chrome://tracing",
        RESULTS,
        "timeline",
        examples=("fabric timeline results/isolation-1",),
    ),
    "export": Command(
        "write a result in the format of another tool: Prometheus, Perfetto, nccl-tests, fio",
        RESULTS,
        "export",
        examples=(
            "fabric export prometheus results/isolation-1 --out /var/lib/node_exporter/fabric.prom",
            "fabric export perfetto results/isolation-1 --out isolation.pftrace",
            "fabric export nccl-tests results/isolation-1 --job hfreduce",
            "fabric export fio results/isolation-1 --phase storage_alone --out storage.json",
        ),
    ),
    "cost": Command(
        "what results cost the machine: wall time, memory, packets per second",
        RESULTS,
        "cost",
        examples=("fabric cost results/a results/b --out costs",),
    ),
    "topo": Command(
        "list, show, compare and draw topologies; look for credit loops",
        TOPOLOGIES,
        "topologies",
        "add_topo_options",
        (
            "fabric topo list",
            "fabric topo show fire_flyer_2_small",
            "fabric topo show fire_flyer_2 three_layer_1600",
            "fabric topo draw fire_flyer_2_tiny -o tiny.svg",
            "fabric topo loops uneven_small",
        ),
    ),
    "check": Command(
        "report every fault of a topology or of an experiment's config",
        TOPOLOGIES,
        "topologies",
        "add_check_options",
        ("fabric check my.yaml", "fabric check isolation"),
    ),
    "estimate": Command(
        "when flows end on a fabric of any size, without packets: an estimate, no run",
        TOPOLOGIES,
        "estimate",
        examples=(
            "fabric estimate dgx_a100_10000 --pattern permutation --size 16MiB",
            "fabric estimate fat_tree_k16 --pattern all_to_all --peers 32 --routing ecmp",
            "fabric estimate fat_tree_k4 --matrix t.cm",
            "fabric estimate fire_flyer_2 --jobs jobs.yaml --json",
            "fabric estimate fat_tree_k8 --collisions",
        ),
    ),
    "path": Command(
        "the path between two hosts: as planned, or of a real packet",
        TOPOLOGIES,
        "path",
        examples=(
            "fabric path fire_flyer_2_small z0h000 z1h003",
            "fabric path fire_flyer_2_small z0h000 z1h003 --repair fast_failover --down z0l00:5",
            "fabric path fire_flyer_2_tiny z0h000 z1h000 --probe",
        ),
    ),
    "cluster": Command(
        "a scheduler that users ask; faults by published rates, lists of jobs under policies, a machine's goodput",
        CLUSTER,
        "cluster",
        examples=(
            "fabric cluster up fire_flyer_2_small",
            "fabric cluster up fire_flyer_2_tiny --nodes z0h000,z0h001,z0h002 --set policy=fifo",
            "fabric cluster submit --nodes 2 --name counts -- python3 -m cluster.platform.counted_steps 60 10",
            "fabric cluster submit --nodes 4 --priority HIGH --wait -- ./train.sh",
            "fabric cluster submit --nodes 2 --collective '{algorithm: hfreduce, begin: 1 MiB, steps: 20}'",
            "fabric cluster status --watch",
            "fabric cluster list --json",
            "fabric cluster describe 1",
            "fabric cluster logs 1 --rank 1 --follow",
            "fabric cluster suspend 1",
            "fabric cluster hold 1",
            "fabric cluster release 1",
            "fabric cluster cancel 1 2",
            "fabric cluster stop 1",
            "fabric cluster squeue",
            "fabric cluster sinfo",
            "fabric cluster fail z0l00-z0s01 --set loss=0.01",
            "fabric cluster heal z0l00-z0s01",
            "fabric cluster page --port 9464",
            "fabric cluster nodes",
            "fabric cluster validate z0h001 z0h002",
            "fabric cluster down",
            "fabric cluster faults fire_flyer_2 --topology fire_flyer_2_small --out failures.yaml --faster 1000",
            "fabric cluster faults llama3 --topology fire_flyer_2_small --platform --out failures.yaml --faster 1e5",
            "fabric cluster play --jobs kalos --count 300 --policy hai --policy easy",
            "fabric cluster goodput fire_flyer_2 llama3 --days 30 --set interval=300 --set save=1",
        ),
    ),
    "doctor": Command(
        "what this machine can run, what is missing, and how to fix it",
        MACHINE,
        "doctor",
        examples=("fabric doctor", "fabric doctor --json"),
    ),
    "virtual": Command(
        "build, fetch, list and export kernels of the virtual engine; keep its guests warm",
        MACHINE,
        "guest_kernels",
        examples=(
            "fabric virtual build",
            "fabric virtual fetch https://example.org/simple/",
            "fabric virtual list",
            "fabric virtual warm --idle 1h",
            "fabric virtual export kernel.tar.gz",
            "fabric virtual fetch kernel.tar.gz",
        ),
    ),
    "calibrate": Command(
        "find the rate that this machine carries in real time (needs root)",
        MACHINE,
        "calibrate",
        examples=("fabric calibrate fire_flyer_2_small", "fabric calibrate fire_flyer_2_tiny --at '10 Mbit/s'"),
    ),
    "bench": Command(
        "measure how long a fabric takes to come up, and each limit of its nodes",
        MACHINE,
        "bench",
        examples=("fabric bench setup --topology fire_flyer_2_small", "fabric bench inside --engine virtual"),
    ),
    "completion": Command(
        "print a script that completes commands, options and names in your shell",
        MACHINE,
        "completion",
        examples=(
            "fabric completion bash --out ~/.local/share/bash-completion/completions/fabric",
            "fabric completion zsh --out ~/.zfunc/_fabric",
        ),
    ),
}
"""By name, in the order of ``fabric --help``."""

USAGE = "fabric [-h] [--version] COMMAND ..."


def grouped_help() -> str:
    """Return what ``fabric --help`` prints."""
    width = max(map(len, COMMANDS)) + 2
    lines = [f"usage: {USAGE}", "", "Emulate the network of AI clusters on one machine, with real packets."]
    for group in dict.fromkeys(command.group for command in COMMANDS.values()):
        lines += ["", f"{group}:"]
        lines += [f"  {name:<{width}}{command.help}" for name, command in COMMANDS.items() if command.group == group]
    lines += [
        "",
        "options:",
        f"  {'-h, --help':<{width}}  show this and exit",
        f"  {'--version':<{width}}  show the version and exit",
        "",
        "fabric COMMAND --help has a command's options and examples. What brings a fabric up takes --engine namespace",
        "(real time, for root alone and root's default) or --engine virtual (virtual time, the default of all others).",
        "First steps:",
        "  fabric doctor",
        "  fabric new my_question",
        "  fabric run my_question",
    ]
    return "\n".join(lines) + "\n"
