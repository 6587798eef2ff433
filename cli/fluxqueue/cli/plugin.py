"""`kubectl fluxqueue`: the queue as a person sees it.

kubectl runs this program when somebody types ``kubectl fluxqueue ...``, so flags, output forms, exit codes and complaints are
kubectl's. It acts with the person's own credentials: whoever may not list or edit FluxJobs with kubectl may not do so here. Start-up is
most of the time of such a command, hence the plain standard library (see `fluxqueue.cli.cluster`).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NoReturn

from fluxqueue.cli.cluster import Cluster, ClusterError
from fluxqueue.cli.kubeconfig import Connection, InvalidKubeconfig, connection

__all__ = ["main"]

_FAILED = 1
_INTERRUPTED = 130
_VERBS = {
    "hold": "keep what waits from starting",
    "release": "let what is held start again",
    "cancel": "end a workload: a Job is suspended, a pod that waits is deleted",
    "prioritize": "give what waits another priority",
    "move": "let it wait in another queue",
}
_STATES = ("pending", "allocated", "running", "draining", "completed", "failed", "cancelled")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the plugin.

    Parameters
    ----------
    argv
        Words after the program's name; those of the process if None.

    Returns
    -------
    int
        0, or 1 for anything that failed, as kubectl does; 130 after Ctrl-C.
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


class _Parser(argparse.ArgumentParser):
    """Complains as kubectl does: one line, where help is, exit code 1."""

    def error(self, message: str) -> NoReturn:
        self.exit(_FAILED, f"error: {message}\nSee '{self.prog} --help' for usage.\n")


def _parser() -> _Parser:
    common = _Parser(add_help=False, argument_default=argparse.SUPPRESS)
    common.add_argument("-n", "--namespace", metavar="NAME", help="namespace; that of the context if not given")
    common.add_argument("--context", metavar="NAME", help="context of the kubeconfig")
    common.add_argument("--kubeconfig", metavar="FILE", help="kubeconfig to read instead of KUBECONFIG or ~/.kube/config")
    parser = _Parser(prog="kubectl fluxqueue", description="What waits and what runs in fluxqueue, and why.", parents=[common])
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)

    jobs = commands.add_parser("jobs", parents=[common], help="the queue as a table", description="The queue as a table.")
    jobs.add_argument("name", nargs="*", metavar="NAME", help="only these FluxJobs or objects (lammps, job/lammps)")
    jobs.add_argument("-A", "--all-namespaces", action="store_true", help="of all namespaces")
    jobs.add_argument("-l", "--selector", default="", metavar="SELECTOR", help="label selector, as kubectl's")
    jobs.add_argument("-q", "--queue", default="", metavar="QUEUE", help="only this queue")
    jobs.add_argument("--state", default="", metavar="STATE[,STATE]", help=f"only these: {', '.join(_STATES)}", type=_states)
    jobs.add_argument("-o", "--output", default="", choices=["wide", "json", "yaml", "name"], help="form of the output")
    jobs.add_argument("--no-headers", action="store_true", help="no line of titles")
    jobs.add_argument("-w", "--watch", action="store_true", help="go on with a line for each change")
    jobs.set_defaults(run=_jobs)

    explain = commands.add_parser(
        "explain",
        parents=[common],
        help="one workload in words: why it waits, where it runs",
        description="What was asked for, where it stands, why it waits, what would help, and which pod is on which node.",
    )
    explain.add_argument("name", metavar="NAME", help="a FluxJob, or your object: lammps, job/lammps, pod/probe, deployment/web")
    explain.add_argument("-o", "--output", default="", choices=["wide"], help="wide: every pod of a big workload")
    explain.set_defaults(run=_explain)

    queues = commands.add_parser("queues", parents=[common], help="the queues", description="The FluxQueues of the cluster.")
    queues.add_argument("-o", "--output", default="", choices=["wide", "json", "yaml", "name"], help="form of the output")
    queues.add_argument("--no-headers", action="store_true", help="no line of titles")
    queues.set_defaults(run=_queues)

    for verb, words in _VERBS.items():
        parser_of = commands.add_parser(verb, parents=[common], help=words, description=f"{words[0].upper()}{words[1:]}.")
        many = verb in ("hold", "release", "cancel")
        parser_of.add_argument("name", nargs="+" if many else None, metavar="NAME", help="a FluxJob, or your object: lammps, job/lammps")
        if verb == "prioritize":
            parser_of.add_argument("priority", type=int, metavar="N", help="higher starts earlier, within what the queue allows")
        if verb == "move":
            parser_of.add_argument("-q", "--queue", required=True, metavar="QUEUE", help="where it is to wait")
        parser_of.set_defaults(run=_steer)

    doctor = commands.add_parser(
        "doctor",
        parents=[common],
        help="compare the cluster, the queue's tables and its graph",
        description="Compare what exists, what is decided and what is free. Names each difference; exit code 1 if there is any.",
    )
    doctor.add_argument("--repair", action="store_true", help="mend what can be mended, then compare again")
    doctor.add_argument("--json", action="store_true", help="as JSON")
    doctor.add_argument("--system-namespace", default="", metavar="NAME", help="where fluxqueue runs; found by its label if not given")
    doctor.add_argument("--queue-url", default="", metavar="URL", help="ask this address instead of going through the API server")
    doctor.set_defaults(run=_doctor)

    version = commands.add_parser(
        "version", parents=[common], help="versions of this program and of the server, and what the queue's replicas do and miss"
    )
    version.set_defaults(run=_version)
    return parser


def _states(text: str) -> frozenset[str]:
    asked = frozenset(part.strip().lower() for part in text.split(",") if part.strip())
    if unknown := sorted(asked - set(_STATES)):
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)} is not a state; there are {', '.join(_STATES)}")
    return asked


def _connection(arguments: argparse.Namespace) -> Connection:
    return connection(getattr(arguments, "kubeconfig", None), getattr(arguments, "context", None))


def _namespace(arguments: argparse.Namespace, chosen: Connection) -> str:
    return str(getattr(arguments, "namespace", None) or chosen.namespace)


def _now() -> datetime:
    return datetime.now().astimezone()


def _jobs(arguments: argparse.Namespace) -> int:
    from fluxqueue.cli import listing

    chosen = _connection(arguments)
    with Cluster(chosen) as cluster:
        return listing.jobs(
            cluster,
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
    from fluxqueue.cli.lookup import find
    from fluxqueue.cli.tables import wants_colour

    chosen = _connection(arguments)
    with Cluster(chosen) as cluster:
        found = find(cluster, _namespace(arguments, chosen), arguments.name)
    now = _now()
    texts = [explain(seen, now, every_pod=arguments.output == "wide", colour=wants_colour(sys.stdout)) for seen in found]
    sys.stdout.write("\n".join(texts))
    return 0


def _queues(arguments: argparse.Namespace) -> int:
    from fluxqueue.cli import listing

    with Cluster(_connection(arguments)) as cluster:
        return listing.queues(cluster, sys.stdout, output=arguments.output, titles=not arguments.no_headers)


def _steer(arguments: argparse.Namespace) -> int:
    from fluxqueue.cli import steering

    chosen = _connection(arguments)
    with Cluster(chosen) as cluster:
        match arguments.command:
            case "hold":
                change = steering.held()
            case "release":
                change = steering.released()
            case "cancel":
                change = steering.cancelled()
            case "prioritize":
                change = steering.prioritized(arguments.priority)
            case _:
                change = steering.moved(cluster, arguments.queue)
        wanted = (arguments.name,) if isinstance(arguments.name, str) else tuple(arguments.name)
        return steering.steer(cluster, _namespace(arguments, chosen), wanted, change, sys.stdout)


def _doctor(arguments: argparse.Namespace) -> int:
    from fluxqueue.cli import doctor

    url = arguments.queue_url or os.environ.get(doctor.URL_VARIABLE, "")
    with doctor.way_to_queue(url, lambda: Cluster(_connection(arguments), doctor.TIMEOUT_S), arguments.system_namespace) as queue:
        return doctor.doctor(queue, sys.stdout, repair=arguments.repair, as_json=arguments.json)


def _version(arguments: argparse.Namespace) -> int:
    from importlib.metadata import version
    from json import loads

    from fluxqueue.cli import doctor

    print(f"Client Version: v{version('fluxqueue')}")
    with Cluster(_connection(arguments)) as cluster:
        print(f"Server Version: {loads(cluster.get('/version')).get('gitVersion', 'unknown')}")
    try:
        with doctor.way_to_queue(os.environ.get(doctor.URL_VARIABLE, ""), lambda: Cluster(_connection(arguments)), "") as queue:
            doctor.roll_call(queue, sys.stdout)
    except ClusterError as error:
        print(f"Queue: cannot be asked ({str(error).removeprefix('error: ')})")
    return 0
