"""`kubectl fluxqueue`: the kubectl plugin for people who use the queue.

kubectl runs this program for ``kubectl fluxqueue ...``, so flags, output formats, exit codes and errors are like kubectl's. It uses the
person's own credentials and permissions. Most of its time is the start of the interpreter and imports, so it uses the standard library (see
`fluxqueue.cli.api_client`).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from fluxqueue.api import names
from fluxqueue.cli.api_client import ApiClient, ClusterError
from fluxqueue.cli.kubeconfig import Connection, InvalidKubeconfig, connection
from fluxqueue.cli.usage_errors import UsageParser, whole_number

__all__ = ["main"]

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[UsageParser]

_FAILED = 1
_INTERRUPTED = 130
_VERBS = {
    "hold": "keep a waiting workload from starting",
    "release": "let a held workload start",
    "cancel": "end a workload: a Job is suspended, a waiting pod is deleted",
    "prioritize": "change the priority of a waiting workload",
    "move": "move a waiting workload to another queue",
}
_EXAMPLES = {"prioritize": " 10", "move": " -q night"}
_STATES = ("pending", "allocated", "running", "draining", "completed", "failed", "cancelled")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the plugin.

    Parameters
    ----------
    argv
        Arguments; by default those of the process.

    Returns
    -------
    int
        0, or 1 for any failure, as kubectl does; 130 after Ctrl-C.
    """
    debug = os.environ.get("FLUXQUEUE_DEBUG", "") not in ("", "0")
    try:
        arguments = _parser().parse_args(argv)
        if arguments.command is None:
            _parser().print_help()
            return 0
        command: Callable[[argparse.Namespace], int] = arguments.run
        return command(arguments)
    except (InvalidKubeconfig, ClusterError) as error:
        print(f"error: {error}" if isinstance(error, InvalidKubeconfig) else error, file=sys.stderr)
        return _FAILED
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        from fluxqueue.cli.crashes import report

        report("kubectl fluxqueue", error, debug=debug, log_is_stderr=False)
        return _FAILED


def _parser() -> UsageParser:
    common = _common_options()
    parser = UsageParser(prog="kubectl fluxqueue", description="What waits and what runs in fluxqueue, and why.", parents=[common])
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=UsageParser)
    _add_jobs(commands, common)
    _add_explain(commands, common)
    _add_queues(commands, common)
    _add_order(commands, common)
    _add_edits(commands, common)
    _add_history(commands, common)
    _add_doctor(commands, common)
    _add_uninstall(commands, common)
    version = commands.add_parser(
        "version", parents=[common], help="versions of this program and of the server, and the state of the queue's replicas"
    )
    version.set_defaults(run=_version)
    return parser


def _common_options() -> UsageParser:
    common = UsageParser(add_help=False, argument_default=argparse.SUPPRESS)
    common.add_argument("-n", "--namespace", metavar="NAME", help="namespace; that of the context if not given")
    common.add_argument("--context", metavar="NAME", help="context of the kubeconfig")
    common.add_argument("--kubeconfig", metavar="FILE", help="kubeconfig to read instead of KUBECONFIG or ~/.kube/config")
    return common


def _add_jobs(commands: Commands, common: UsageParser) -> None:
    jobs = commands.add_parser("jobs", parents=[common], help="the queue as a table", description="The queue as a table.")
    jobs.add_argument("name", nargs="*", metavar="NAME", help="only these FluxJobs or objects (lammps, job/lammps)")
    jobs.add_argument("-A", "--all-namespaces", action="store_true", help="of all namespaces")
    jobs.add_argument("-l", "--selector", default="", metavar="SELECTOR", help="label selector, as kubectl's")
    jobs.add_argument("-q", "--queue", default="", metavar="QUEUE", help="only this queue")
    jobs.add_argument("--state", default="", metavar="STATE[,STATE]", help=f"only these: {', '.join(_STATES)}", type=_states)
    jobs.add_argument("-o", "--output", default="", choices=["wide", "json", "yaml", "name"], help="form of the output")
    jobs.add_argument("--no-headers", action="store_true", help="no line of titles")
    jobs.add_argument("-w", "--watch", action="store_true", help="then print a line for each change")
    jobs.set_defaults(run=_jobs)


def _add_explain(commands: Commands, common: UsageParser) -> None:
    explain = commands.add_parser(
        "explain",
        parents=[common],
        help="explain one workload: why it waits, where it runs",
        description="The request of a workload, its state, why it waits, what helps, and the node of each pod.",
    )
    explain.add_argument("name", metavar="NAME", help="a FluxJob, or your object: lammps, job/lammps, pod/probe, deployment/web")
    explain.add_argument("-o", "--output", default="", choices=["wide"], help="wide: every pod of a big workload")
    explain.example = "kubectl fluxqueue explain lammps"
    explain.set_defaults(run=_explain)


def _add_queues(commands: Commands, common: UsageParser) -> None:
    queues = commands.add_parser("queues", parents=[common], help="the queues", description="The FluxQueues of the cluster.")
    queues.add_argument("-o", "--output", default="", choices=["wide", "json", "yaml", "name"], help="form of the output")
    queues.add_argument("--no-headers", action="store_true", help="no line of titles")
    queues.set_defaults(run=_objects, plural=names.FLUXQUEUES)
    about = "The FluxReservations of the cluster: nodes that are set aside for people or for maintenance."
    reservations = commands.add_parser("reservations", parents=[common], help="what is set aside for people", description=about)
    reservations.add_argument("-o", "--output", default="", choices=["wide", "json", "yaml", "name"], help="form of the output")
    reservations.add_argument("--no-headers", action="store_true", help="no line of titles")
    reservations.set_defaults(run=_objects, plural=names.FLUXRESERVATIONS)


def _add_order(commands: Commands, common: UsageParser) -> None:
    shares = commands.add_parser(
        "shares",
        parents=[common],
        help="the accounts: shares, use, and fair-share factors",
        description="The accounts as a tree: what each is to have, what it used, and its fair-share factor.",
    )
    shares.add_argument("--no-headers", action="store_true", help="no line of titles")
    shares.set_defaults(run=_shares)
    priority = commands.add_parser(
        "priority",
        parents=[common],
        help="what the priorities of waiting workloads are made of",
        description="The priority by which each waiting workload is ordered, and its parts.",
    )
    priority.add_argument("name", nargs="*", metavar="NAME", help="only these FluxJobs or objects (lammps, job/lammps)")
    priority.add_argument("-A", "--all-namespaces", action="store_true", help="of all namespaces")
    priority.add_argument("-q", "--queue", default="", metavar="QUEUE", help="only this queue")
    priority.add_argument("-o", "--output", default="", choices=["wide"], help="wide: also what the parts come from")
    priority.add_argument("-w", "--weights", action="store_true", help="the weights of the queues instead")
    priority.add_argument("--no-headers", action="store_true", help="no line of titles")
    priority.set_defaults(run=_priority)


def _add_edits(commands: Commands, common: UsageParser) -> None:
    for verb, summary in _VERBS.items():
        command = commands.add_parser(verb, parents=[common], help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        command.example = f"kubectl fluxqueue {verb} lammps{_EXAMPLES.get(verb, '')}"
        command.add_argument("name", nargs="+", metavar="NAME", help="FluxJobs, or your objects: lammps, job/lammps")
        if verb == "prioritize":
            number = whole_number("the priority", command.example)
            command.add_argument("priority", type=number, metavar="N", help="higher starts earlier, within the queue's limit")
        if verb == "move":
            command.add_argument("-q", "--queue", required=True, metavar="QUEUE", help="the other queue")
        command.set_defaults(run=_edit)


def _add_history(commands: Commands, common: UsageParser) -> None:
    from fluxqueue.cli import history_options as options

    for name, add, run in (("history", options.add_history_options, _history), ("report", options.add_report_options, _report)):
        command = commands.add_parser(name, parents=[common], help=options.SUMMARIES[name], description=options.DESCRIPTIONS[name])
        command.example = options.EXAMPLES[name]
        add(command)
        command.set_defaults(run=run)


def _add_doctor(commands: Commands, common: UsageParser) -> None:
    doctor = commands.add_parser(
        "doctor",
        parents=[common],
        help="compare the cluster, the queue's tables and its graph",
        description="Compare the cluster, the queue's tables and its graph. Print each difference; exit code 1 if there is any.",
    )
    doctor.add_argument("--repair", action="store_true", help="repair what can be repaired, then compare again")
    doctor.add_argument("--json", action="store_true", help="as JSON")
    doctor.add_argument("--system-namespace", default="", metavar="NAME", help="namespace of fluxqueue; by default found by label")
    doctor.add_argument("--queue-ca", default="", metavar="FILE", help="authority of the certificate at that address")
    doctor.add_argument("--queue-url", default="", metavar="URL", help="ask this address instead of going through the API server")
    doctor.set_defaults(run=_doctor)


def _add_uninstall(commands: Commands, common: UsageParser) -> None:
    from fluxqueue.cli.uninstall import options

    uninstall = commands.add_parser("uninstall", parents=[common], help=options.SUMMARY, description=options.DESCRIPTION)
    uninstall.example = "kubectl fluxqueue uninstall --release-held"
    options.add_uninstall_options(uninstall)
    uninstall.set_defaults(run=_uninstall)


def _states(text: str) -> frozenset[str]:
    states = frozenset(part.strip().lower() for part in text.split(",") if part.strip())
    if unknown := sorted(states - set(_STATES)):
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)} is not a state; there are {', '.join(_STATES)}")
    return states


def _connection(arguments: argparse.Namespace) -> Connection:
    return connection(getattr(arguments, "kubeconfig", None), getattr(arguments, "context", None))


def _namespace(arguments: argparse.Namespace, chosen: Connection) -> str:
    return str(getattr(arguments, "namespace", None) or chosen.namespace)


def _now() -> datetime:
    return datetime.now().astimezone()


def _jobs(arguments: argparse.Namespace) -> int:
    from fluxqueue.cli import listing

    chosen = _connection(arguments)
    with ApiClient(chosen) as client:
        return listing.jobs(
            client,
            listing.JobsQuery(
                namespace=None if arguments.all_namespaces else _namespace(arguments, chosen),
                names=tuple(arguments.name),
                selector=arguments.selector,
                queue=arguments.queue,
                states=arguments.state or frozenset(),
                output=arguments.output,
                titles=not arguments.no_headers,
                watch=arguments.watch,
            ),
            sys.stdout,
            _now,
        )


def _explain(arguments: argparse.Namespace) -> int:
    from fluxqueue.cli.explain import explain
    from fluxqueue.cli.guarantees import guarantees_of
    from fluxqueue.cli.lookup import find
    from fluxqueue.cli.tables import wants_colour

    chosen = _connection(arguments)
    with ApiClient(chosen) as client:
        workloads = find(client, _namespace(arguments, chosen), arguments.name)
        guaranteed = guarantees_of(client, [seen.job for seen in workloads])
    now, wide, colour = _now(), arguments.output == "wide", wants_colour(sys.stdout)
    texts = [explain(seen, now, every_pod=wide, colour=colour, guaranteed=guaranteed(seen.job)) for seen in workloads]
    sys.stdout.write("\n".join(texts))
    return 0


def _objects(arguments: argparse.Namespace) -> int:
    from fluxqueue.cli import listing

    with ApiClient(_connection(arguments)) as client:
        return listing.objects(client, arguments.plural, sys.stdout, output=arguments.output, titles=not arguments.no_headers)


def _shares(arguments: argparse.Namespace) -> int:
    from fluxqueue.cli.shares import shares

    with ApiClient(_connection(arguments)) as client:
        return shares(client, sys.stdout, titles=not arguments.no_headers)


def _priority(arguments: argparse.Namespace) -> int:
    from fluxqueue.cli.priorities import PriorityQuery, priorities

    chosen = _connection(arguments)
    query = PriorityQuery(
        namespace=None if arguments.all_namespaces else _namespace(arguments, chosen),
        names=tuple(arguments.name),
        queue=arguments.queue,
        wide=arguments.output == "wide",
        weights=arguments.weights,
        titles=not arguments.no_headers,
    )
    with ApiClient(chosen) as client:
        return priorities(client, query, sys.stdout, _now())


def _edit(arguments: argparse.Namespace) -> int:
    from fluxqueue.cli import fluxjob_edits

    chosen = _connection(arguments)
    with ApiClient(chosen) as client:
        match arguments.command:
            case "hold":
                change = fluxjob_edits.held()
            case "release":
                change = fluxjob_edits.released()
            case "cancel":
                change = fluxjob_edits.cancelled()
            case "prioritize":
                change = fluxjob_edits.prioritized(arguments.priority)
            case _:
                change = fluxjob_edits.moved(client, arguments.queue)
        return fluxjob_edits.edit_fluxjobs(client, _namespace(arguments, chosen), arguments.name, change, sys.stdout)


def _history(arguments: argparse.Namespace) -> int:
    from fluxqueue.cli import history, history_options
    from fluxqueue.cli.history_source import find_history

    chosen = _connection(arguments)
    namespace = "" if arguments.all_namespaces else _namespace(arguments, chosen)
    with find_history(history_options.address(arguments, namespace, os.environ), lambda timeout_s: ApiClient(chosen, timeout_s)) as source:
        return history.history(source, history_options.history_request(arguments, namespace), sys.stdout, _now)


def _report(arguments: argparse.Namespace) -> int:
    from fluxqueue.cli import history_options, report
    from fluxqueue.cli.history_source import find_history

    chosen = _connection(arguments)
    namespace = "" if arguments.all_namespaces else _namespace(arguments, chosen)
    with find_history(history_options.address(arguments, namespace, os.environ), lambda timeout_s: ApiClient(chosen, timeout_s)) as source:
        return report.report(source, history_options.report_request(arguments, namespace), sys.stdout)


def _doctor(arguments: argparse.Namespace) -> int:
    from fluxqueue.cli import doctor
    from fluxqueue.cli.queue_endpoint import CA_VARIABLE, TIMEOUT_S, URL_VARIABLE, QueueAddress, find_queue

    address = QueueAddress(
        url=arguments.queue_url or os.environ.get(URL_VARIABLE, ""),
        ca=arguments.queue_ca or os.environ.get(CA_VARIABLE, ""),
        namespace=arguments.system_namespace,
    )
    with find_queue(address, lambda: ApiClient(_connection(arguments), TIMEOUT_S)) as queue:
        return doctor.doctor(queue, sys.stdout, repair=arguments.repair, as_json=arguments.json)


def _uninstall(arguments: argparse.Namespace) -> int:
    from fluxqueue.cli.uninstall.command import run

    return run(arguments)


def _version(arguments: argparse.Namespace) -> int:
    from importlib.metadata import version
    from json import loads

    from fluxqueue.cli import doctor
    from fluxqueue.cli.queue_endpoint import CA_VARIABLE, URL_VARIABLE, QueueAddress, find_queue

    print(f"Client Version: v{version('fluxqueue')}")
    with ApiClient(_connection(arguments)) as client:
        print(f"Server Version: {loads(client.get('/version')).get('gitVersion', 'unknown')}")
    try:
        address = QueueAddress(url=os.environ.get(URL_VARIABLE, ""), ca=os.environ.get(CA_VARIABLE, ""))
        with find_queue(address, lambda: ApiClient(_connection(arguments))) as queue:
            doctor.show_replicas(queue, sys.stdout)
    except ClusterError as error:
        print(f"Queue: cannot be reached ({str(error).removeprefix('error: ')})")
    return 0
