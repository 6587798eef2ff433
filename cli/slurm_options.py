"""The options of Slurm's batch scripts: which are read, which are remarked upon, and what to write instead of
all others.

Each has its short form, if there is one.
"""

from __future__ import annotations

from typing import Final

__all__ = ["FLAGS_REFUSED", "OF_SACCT", "OF_SCANCEL", "OF_SLURM", "OF_SQUEUE", "READ", "REFUSED", "REMARKED"]

READ: Final = {
    "job-name": "-J",
    "nodes": "-N",
    "ntasks": "-n",
    "ntasks-per-node": None,
    "array": "-a",
    "cpus-per-task": "-c",
    "mem": None,
    "mem-per-cpu": None,
    "gres": None,
    "gpus": "-G",
    "gpus-per-node": None,
    "gpus-per-task": None,
    "time": "-t",
    "partition": "-p",
    "priority": None,
    "begin": "-b",
    "deadline": None,
    "reservation": None,
    "export": None,
    "container-image": None,
}
REMARKED: Final = {
    "output": ("-o", "what pods print is read by kubectl fluxqueue logs"),
    "error": ("-e", "what pods print is read by kubectl fluxqueue logs"),
    "open-mode": (None, "what pods print is read by kubectl fluxqueue logs"),
}
_REMOVE: Final = "it has no effect here: remove the line"
_WITHOUT_EFFECT: Final = [
    "acctg-freq",
    "batch",
    "bb",
    "bbf",
    "core-spec",
    "cpu-freq",
    "delay-boot",
    "gpu-bind",
    "gpu-freq",
    "hint",
    "mcs-label",
    "mem-bind",
    "network",
    "power",
    "profile",
    "propagate",
    "thread-spec",
]
_WITHOUT_EFFECT_ALONE: Final = [
    "contiguous",
    "get-user-env",
    "ignore-pbs",
    "no-kill",
    "parsable",
    "quiet",
    "reboot",
    "spread-job",
    "use-min-nodes",
    "verbose",
]
_CORES: Final = "the cores of a node are not told apart: write --cpus-per-task"
_IN_YAML: Final = (
    "write it into the Job that submit --dry-run -o yaml prints (nodeSelector, affinity), and apply that"
)
REFUSED: Final = {
    **dict.fromkeys(_WITHOUT_EFFECT, (None, _REMOVE)),
    "account": (
        "-A",
        "the account follows from the namespace: choose it by submit -n NAMESPACE, and remove the line",
    ),
    "chdir": ("-D", "write cd into the script"),
    "comment": (None, "write #FQ --label KEY=VALUE, or remove the line"),
    "constraint": ("-C", _IN_YAML),
    "cpus-per-gpu": (None, "write --cpus-per-task"),
    "clusters": ("-M", "kubectl chooses the cluster: type submit --context NAME, and remove the line"),
    "dependency": ("-d", "names take the place of job ids: write #FQ --after ok:job/NAME"),
    "distribution": (
        "-m",
        "pods of one rack have consecutive ranks: remove the line, or write #FQ --topology rack",
    ),
    "exclude": ("-x", _IN_YAML),
    "export-file": (None, "write #FQ --env NAME=VALUE"),
    "gpus-per-socket": (None, "write --gpus-per-node"),
    "input": ("-i", "write ./program < FILE into the script"),
    "licenses": (
        "-L",
        "an administrator limits a resource in a FluxAccount: ask for that resource in the Job",
    ),
    "mail-type": (None, "no mail is sent: remove the line, and wait with kubectl fluxqueue wait"),
    "mail-user": (None, "no mail is sent: remove the line, and wait with kubectl fluxqueue wait"),
    "mem-per-gpu": (None, "write --mem-per-cpu, or #FQ -m SIZE for each pod"),
    "mincpus": (None, "write --cpus-per-task"),
    "nice": (None, "write --priority"),
    "nodelist": ("-w", _IN_YAML),
    "ntasks-per-core": (None, "write --cpus-per-task"),
    "ntasks-per-socket": (None, "write --ntasks-per-node"),
    "qos": ("-q", "write --priority, or the queue as --partition"),
    "signal": (
        None,
        "pods get SIGTERM at their end; a warning before it is enforceDuration.graceSeconds of the FluxQueue",
    ),
    "sockets-per-node": (None, _CORES),
    "cores-per-socket": (None, _CORES),
    "threads-per-core": (None, _CORES),
    "extra-node-info": ("-B", _CORES),
    "prefer": (None, _IN_YAML),
    "nodefile": ("-F", _IN_YAML),
    "switches": (None, "write #FQ --topology rack, or --prefer-topology rack"),
    "ntasks-per-gpu": (None, "write --gpus-per-task"),
    "time-min": (None, "write --time alone: shorter work starts earlier"),
    "tres-per-task": (None, "write --cpus-per-task and --gpus-per-task"),
    "wckey": (None, "write #FQ --label KEY=VALUE, or remove the line"),
    "wrap": (None, "write the command into the script, or type it after --"),
    "tmp": (None, "ask for ephemeral-storage in the Job that submit --dry-run -o yaml prints"),
}
FLAGS_REFUSED: Final = {
    **dict.fromkeys(_WITHOUT_EFFECT_ALONE, (None, _REMOVE)),
    "hold": ("-H", "hold it afterwards: kubectl fluxqueue hold NAME"),
    "no-requeue": (None, "work of a lost node waits again: remove the line"),
    "oversubscribe": ("-s", "nodes are shared unless --exclusive is said: remove the line"),
    "overcommit": ("-O", "write #FQ -c with less than a core, such as 500m"),
    "wait": ("-W", "type it: kubectl fluxqueue submit SCRIPT --wait"),
}

_INSTEAD: Final = {
    "job-name": "it is -J/--name",
    "ntasks": "it is --pods",
    "ntasks-per-node": "write -N NODES and --pods in all",
    "cpus-per-task": "it is -c/--cpus",
    "mem-per-cpu": "it is -m/--memory, of each pod",
    "gres": "it is -g/--gpus, of each pod",
    "gpus-per-node": "it is -g/--gpus, of each pod",
    "gpus-per-task": "it is -g/--gpus",
    "partition": "it is -q/--queue",
    "export": "it is --env NAME=VALUE",
    "container-image": "it is --image",
    "requeue": "it is always so",
    "dependency": "it is --after ok:job/NAME",
    "wrap": "write the command after --",
}
_NO_OPTIONS: Final = {**REMARKED, **REFUSED, **FLAGS_REFUSED}
OF_SLURM: Final = {
    option: text.replace("remove the line", "leave it out")
    for name, (short, text) in _NO_OPTIONS.items()
    for option in (f"--{name}", short)
    if option is not None
} | {
    **{f"--{name}": text for name, text in _INSTEAD.items()},
    "-d": _INSTEAD["dependency"],
}
"""What to write instead of an option of Slurm that is typed."""

_BY_NAME: Final = "names take the place of job ids: give NAME alone"
_SELECTED: Final = {
    **dict.fromkeys(("-t", "--states"), "it is --state, such as --state pending,running"),
    **dict.fromkeys(("-p", "--partition"), "it is -q/--queue"),
    **dict.fromkeys(("-j", "--jobs", "--job"), _BY_NAME),
}
OF_SQUEUE: Final = {
    **_SELECTED,
    **dict.fromkeys(("-a", "--all"), "it is -A for all namespaces"),
    "--start": "the column START has it",
    "--long": "it is -o wide",
    **dict.fromkeys(("-i", "--iterate"), "it is -w, which prints each change"),
    "--nodelist": "kubectl fluxqueue nodes NODE shows the work on a node",
    "--limit": "all is shown: choose with --state, --queue or -l",
}
"""The same of ``squeue``."""
_ALL_OF_ALL: Final = "it is --all for all work of the namespace that you may cancel, or NAMEs"
OF_SCANCEL: Final = {
    **_SELECTED,
    **dict.fromkeys(("-u", "--user", "--me"), _ALL_OF_ALL),
    **dict.fromkeys(("-s", "--signal"), "pods get SIGTERM; kubectl exec sends others"),
    **dict.fromkeys(("--name", "--jobname"), "give NAME alone"),
}
"""The same of ``scancel``."""
OF_SACCT: Final = {
    **dict.fromkeys(("-S", "--starttime"), "it is --since"),
    **dict.fromkeys(("-E", "--endtime"), "it is --until"),
    **dict.fromkeys(("-s", "--states"), "it is --state"),
    **dict.fromkeys(("-r", "--partition"), "it is -q/--queue"),
    **dict.fromkeys(("-u", "--uid"), "it is --user"),
    **dict.fromkeys(("-a", "--allusers"), "it shows the work of all who submit in the namespace"),
    **dict.fromkeys(("-j", "--jobs", "--name"), _BY_NAME),
    **dict.fromkeys(("-X", "--allocations"), "each workload is one line: leave it out"),
    "--format": "-o csv or -o json has all columns",
}
"""The same of ``sacct``."""
