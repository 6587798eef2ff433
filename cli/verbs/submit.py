"""`kubectl fluxqueue submit`: its options, and what it runs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from fluxqueue.api import names
from fluxqueue.cli.api_client import ApiClient, ApiRefused, ClusterError
from fluxqueue.cli.listing import require_installed
from fluxqueue.cli.lookup import fluxjobs_of
from fluxqueue.cli.managed_namespaces import not_managed
from fluxqueue.cli.pod_logs import LogOptions, follow_logs
from fluxqueue.cli.queue_names import require_queue
from fluxqueue.cli.request_options import add_request_options, header_options, submission
from fluxqueue.cli.scripts import literal, read_script
from fluxqueue.cli.sessions import connection_of, namespace_of, now
from fluxqueue.cli.slurm_lines import read_slurm_lines
from fluxqueue.cli.slurm_options import OF_SLURM
from fluxqueue.cli.submissions import job_manifest, job_yaml
from fluxqueue.cli.tables import wants_colour
from fluxqueue.cli.usage_errors import UsageParser
from fluxqueue.cli.waiting import FINISHED, STARTED, Progress, wait_for
from fluxqueue.kube.kubeconfig import default_namespace

__all__ = ["add_options", "run"]

_EXAMPLE = "kubectl fluxqueue submit -N 4 -c 8 -t 30m --image example/solver -- solve input.dat"


def add_options(verb: str, command: UsageParser) -> None:
    """Add the options of the command."""
    del verb
    command.description = (
        "Submit a Job: its pods start together, or wait together. What runs is a script, whose #FQ lines "
        "can have these options, and whose #SBATCH lines are read, or the command after --, "
        "or that of the image."
    )
    command.example = _EXAMPLE
    command.of_others = OF_SLURM
    command.add_argument("script", nargs="*", metavar="SCRIPT", help="a script, and its arguments")
    add_request_options(command)
    dry_run = "client (or no word), server: create nothing, and show the Job with -o yaml"
    command.add_argument("--dry-run", default="none", choices=["none", "client", "server"], help=dry_run)
    command.add_argument(
        "--test-only",
        action="store_true",
        help="create nothing, and say when and where it would start, and what would start later",
    )
    command.add_argument(
        "-o", "--output", default="", choices=["yaml", "json", "name"], help="form of the output"
    )
    command.add_argument(
        "--wait", action="store_true", help="until it has ended; exit code 1 unless it succeeded"
    )
    command.add_argument(
        "--attach", action="store_true", help="the same, and print what its pods print, with their ranks"
    )


def run(arguments: argparse.Namespace) -> int:
    """Submit a Job."""
    if arguments.test_only:
        _require_alone(arguments)
    asked, after = vars(arguments), tuple(arguments.after_dashes)
    if arguments.script:
        path, *words = arguments.script
        script = read_script(path)
        slurm = read_slurm_lines(script.slurm_lines, path)
        parts = (slurm.options, header_options(script, path), asked)
        for remark in (*slurm.remarks, *script.remarks):
            print(f"note: {remark}", file=sys.stderr)
        wanted = submission(
            _merged(parts), (*script.command, *map(literal, (*words, *after))), slurm.stem or script.name
        )
    else:
        wanted = submission(asked, after, after[0].rpartition("/")[2] if after else "job")
    if arguments.dry_run == "client":
        namespace = getattr(arguments, "namespace", None) or default_namespace(
            getattr(arguments, "kubeconfig", None), getattr(arguments, "context", None)
        )
        return _show(job_manifest(wanted, namespace), arguments.output, " (dry run)")
    chosen = connection_of(arguments)
    namespace = namespace_of(arguments, chosen)
    manifest = job_manifest(wanted, namespace)
    with ApiClient(chosen) as client, _tasks_are_pods(namespace):
        if (queue := wanted.labels.get(names.QUEUE_LABEL)) is not None:
            require_queue(client, queue)
        tried = _create(client, manifest, {"dryRun": "All"})
        if (tried["metadata"].get("labels") or {}).get(names.SEEN_LABEL) != names.SEEN_VALUE:
            require_installed(client, namespace)
            raise ClusterError(f"error: {not_managed(namespace)}")
        if arguments.test_only:
            return _test(arguments, tried)
        if arguments.dry_run == "server":
            return _show(tried, arguments.output, " (server dry run)")
        created = _create(client, manifest, {})
        _show(created, arguments.output, " created")
        sys.stdout.flush()
        return _follow(client, namespace, created, arguments) if arguments.wait or arguments.attach else 0


def _require_alone(arguments: argparse.Namespace) -> None:
    """Refuse options that need a Job, beside ``--test-only``, which creates none."""
    beside = {
        "--dry-run": arguments.dry_run != "none",
        "--wait": arguments.wait,
        "--attach": arguments.attach,
    }
    if given := [option for option, is_given in beside.items() if is_given]:
        raise ClusterError(
            f"error: --test-only creates no Job, so {given[0]} cannot be beside it: give one of them"
        )
    if arguments.output not in ("", "json"):
        raise ClusterError(
            "error: --test-only prints sentences, or one object with -o json: "
            f"-o {arguments.output} cannot be beside it"
        )


def _test(arguments: argparse.Namespace, tried: dict[str, Any]) -> int:
    from fluxqueue.cli.job_forecasts import show_forecast  # who submits needs neither matcher nor simulator

    kubeconfig, context = getattr(arguments, "kubeconfig", None), getattr(arguments, "context", None)
    return show_forecast(kubeconfig, context, tried, now(), sys.stdout, as_json=arguments.output == "json")


@contextmanager
def _tasks_are_pods(namespace: str) -> Iterator[None]:
    """Say what ``-n 4`` means here, if a namespace of that name cannot be used."""
    try:
        yield
    except ClusterError as error:
        if not namespace.isdecimal():
            raise
        raise ClusterError(f"{error}; -n is the namespace: tasks are --pods {namespace}") from None


def _merged(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return options of which later ones take precedence; variables and labels are added up."""
    merged = {name: value for part in parts for name, value in part.items()}
    return merged | {
        name: [pair for part in parts for pair in part.get(name, ())] for name in ("env", "label")
    }


def _create(client: ApiClient, manifest: dict[str, Any], params: dict[str, str]) -> dict[str, Any]:
    path = f"/apis/batch/v1/namespaces/{manifest['metadata']['namespace']}/jobs"
    try:
        created: dict[str, Any] = json.loads(
            client.post(path, manifest, params={"fieldManager": "kubectl-fluxqueue", **params})
        )
    except ApiRefused as error:
        if "failed calling webhook" in str(error):
            raise ClusterError(
                "error: fluxqueue's webhook does not answer, so nothing can be submitted: kubectl get pods "
                f"-A -l app.kubernetes.io/name=fluxqueue shows it, or ask an administrator ({error})"
            ) from None
        raise
    return created


def _show(job: dict[str, Any], output: str, done: str) -> int:
    name = job["metadata"].get("name") or f"{job['metadata']['generateName']}..."
    job["metadata"].pop("managedFields", None)
    if output == "json":
        print(json.dumps(job, indent=4))
    elif output == "yaml":
        print(job_yaml(job), end="")
    else:
        print(f"job.batch/{name}{'' if output == 'name' else done}")
    return 0


def _follow(client: ApiClient, namespace: str, created: dict[str, Any], arguments: argparse.Namespace) -> int:
    title = f"job/{created['metadata']['name']}"
    progress = Progress(sys.stderr, sys.stderr, now)
    try:
        jobs = fluxjobs_of(client, namespace, title)
        if arguments.attach:
            failed = wait_for(client, jobs, STARTED, None, progress)
            (job,) = fluxjobs_of(client, namespace, title)
            if not failed or job.status.allocated_at is not None:  # the queue does not see every short run
                follow_logs(client, job, LogOptions(colour=wants_colour(sys.stdout)), sys.stdout, sys.stderr)
            if failed:
                return failed
        return wait_for(client, jobs, FINISHED, None, progress)
    except KeyboardInterrupt:
        print(
            "\n"
            f"{title} goes on: kubectl fluxqueue logs -f {title} shows it, "
            f"kubectl fluxqueue cancel {title} ends it",
            file=sys.stderr,
        )
        raise
