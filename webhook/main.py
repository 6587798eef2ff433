"""`fluxqueue webhook`: the admission server as a program.

It needs a folder with a certificate and nothing else: no database, and no API server. Where it can reach one,
with the pod's ServiceAccount or a kubeconfig, it watches FluxQueues, and with a scheduler of ours
(``--default-scheduler``) namespaces, and never waits for them. It logs one JSON object per line to standard
error.
"""

from __future__ import annotations

import argparse
import datetime as dt
import functools
import gc
import sys
from collections.abc import Sequence
from pathlib import Path

from fluxqueue.api import names
from fluxqueue.api.bounds import DEFAULT_MAX_PODS, MOST_PODS, limit_pods
from fluxqueue.api.topology import InvalidTopology, levels_of

__all__ = ["main"]

_LEVELS = ("debug", "info", "warning", "error")
_SCHEDULERS = ("stock", "fluxion")
_REFUSED = 1


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT.

    Parameters
    ----------
    argv
        Arguments after `fluxqueue webhook`; those of the process if None.

    Returns
    -------
    int
        0, or 1 if the address cannot be listened on.
    """
    parser = _parser()
    arguments = parser.parse_args(argv)
    try:
        levels = levels_of(arguments.topology_level)
    except InvalidTopology as error:
        parser.error(f"--topology-level: {error}")

    import uvloop

    from fluxqueue.api.fluxqueues import SchedulerName
    from fluxqueue.api.logs import configure_logging
    from fluxqueue.webhook.choices import SchedulerChoices
    from fluxqueue.webhook.decisions import AdmissionSettings
    from fluxqueue.webhook.server import CannotListen, ServerSettings, serve
    from fluxqueue.webhook.watch import watch_queues

    configure_logging(arguments.log_level)
    limit_pods(arguments.max_pods)
    admission = AdmissionSettings(
        job_controllers=frozenset(arguments.job_controllers or names.JOB_CONTROLLERS),
        daemonset_controllers=frozenset(arguments.daemonset_controllers or names.DAEMONSET_CONTROLLERS),
        exempt_namespaces=frozenset((*names.SYSTEM_NAMESPACES, *arguments.exempt_namespaces)),
        choices=SchedulerChoices(SchedulerName(arguments.default_scheduler))
        if arguments.default_scheduler
        else None,
        record_submitters=arguments.record_submitters,
        levels=levels,
    )
    settings = ServerSettings(
        arguments.host,
        arguments.port,
        arguments.cert_dir,
        arguments.drain_seconds,
        arguments.look_seconds,
        arguments.request_seconds,
        arguments.server_name,
        arguments.health_port,
    )
    watch = functools.partial(watch_queues, admission.queues, admission.choices, arguments.kubeconfig)
    gc.freeze()  # modules loaded by now live as long as the process: the collector need not scan them again
    try:
        uvloop.run(serve(settings, admission, lambda: dt.datetime.now(dt.UTC), watch))
    except CannotListen as error:
        print(f"fluxqueue webhook: {error}", file=sys.stderr)  # noqa: T201  for the person who started it
        return _REFUSED
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fluxqueue webhook",
        description=(
            "HTTPS admission server: suspends Jobs, gates pods, and pins those that have an allocation."
        ),
    )
    parser.add_argument("--host", default="0.0.0.0", help=("address to listen on (default: %(default)s)"))  # noqa: S104  a pod's own address
    parser.add_argument(
        "--port", type=_port, default=9443, help="port to listen on, 0 for a free one (default: %(default)s)"
    )
    _add_serving(parser)
    _add_users(parser)
    parser.add_argument(
        "--max-pods",
        type=_pods,
        default=DEFAULT_MAX_PODS,
        metavar="COUNT",
        help=f"pods that one workload may run at the same time, at most {MOST_PODS} (default: %(default)s)",
    )
    parser.add_argument(
        "--topology-level",
        action="append",
        default=[],
        metavar="NAME=LABEL",
        help=(
            "a level of the topology, from the top down; repeat (default: "
            "names of levels are not checked here)"
        ),
    )
    _add_times(parser)
    parser.add_argument(
        "--default-scheduler",
        choices=_SCHEDULERS,
        help=(
            "scheduler of pods for which neither label nor FluxQueue chooses one; "
            "only with the scheduler of fluxqueue installed"
        ),
    )
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        metavar="FILE",
        help="to watch FluxQueues with (default: the pod's)",
    )
    parser.add_argument(
        "--log-level", choices=_LEVELS, default="info", help="least level to log (default: %(default)s)"
    )
    return parser


def _add_serving(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--health-port",
        type=_port,
        metavar="PORT",
        help=(
            "port of liveness for the kubelet, plain HTTP, answered by a thread of its own (default: "
            "not served)"
        ),
    )
    parser.add_argument(
        "--cert-dir",
        type=Path,
        default=Path("/etc/fluxqueue/tls"),
        metavar="DIR",
        help=(
            "folder with tls.crt and tls.key; missing files are waited for, "
            "changed files are read again (default: %(default)s)"
        ),
    )
    parser.add_argument(
        "--server-name",
        default="",
        metavar="NAME",
        help=(
            "name by which the API server calls: not ready until a call to itself by it is verified with "
            "ca.crt (default: no call)"
        ),
    )


def _add_users(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--job-controller",
        action="append",
        dest="job_controllers",
        metavar="USER",
        help=(
            "user that may create pods carrying an allocation; repeat (default: "
            f"{', '.join(names.JOB_CONTROLLERS)})"
        ),
    )
    parser.add_argument(
        "--daemonset-controller",
        action="append",
        dest="daemonset_controllers",
        metavar="USER",
        help=(
            "user whose DaemonSet pods are not changed; repeat (default: "
            f"{', '.join(names.DAEMONSET_CONTROLLERS)})"
        ),
    )
    parser.add_argument(
        "--exempt-namespace",
        action="append",
        default=[],
        dest="exempt_namespaces",
        metavar="NAMESPACE",
        help=(
            "namespace in which nothing is changed, such as our own; repeat "
            f"({', '.join(names.SYSTEM_NAMESPACES)} always are)"
        ),
    )
    parser.add_argument(
        "--record-submitters", action="store_true", help="write on each object who created it"
    )


def _add_times(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--drain-seconds",
        type=_seconds,
        default=15.0,
        metavar="S",
        help="how long to keep answering after SIGTERM (default: %(default)s)",
    )
    parser.add_argument(
        "--look-seconds",
        type=_seconds,
        default=2.0,
        metavar="S",
        help="time between two checks of the certificate (default: %(default)s)",
    )
    parser.add_argument(
        "--request-seconds",
        type=_seconds,
        default=5.0,
        metavar="S",
        help="time for a request to arrive as a whole (default: %(default)s)",
    )


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: 0 to 65535")
    return int(text)


def _pods(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST_PODS:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of pods: 1 to {MOST_PODS}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 3_600:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds: 0 to 3600")
    return seconds


if __name__ == "__main__":
    sys.exit(main())
