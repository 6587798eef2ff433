"""The files in `FOLDER` of every pod of a Flux cluster: scripts that are always the same, and settings that
differ.

The scripts in ``shell/`` are run unchanged and contain no placeholders. The differences between clusters are
in ``settings.sh``, in which every value is quoted, and in separate files with what people wrote (hooks,
scripts, batches, commands that need a shell). So no text is expanded while it is written into a script, and
the scripts can be checked once, in the source tree.
"""

from __future__ import annotations

import enum
import shlex
from functools import cache
from pathlib import Path

from fluxqueue.api.miniclusters import Commands, MiniClusterContainer, MiniClusterSpec
from fluxqueue.minicluster import broker
from fluxqueue.minicluster.bounds import hosts_of
from fluxqueue.minicluster.commands import array, assignment, batch_lines, exports, parse_command, words
from fluxqueue.minicluster.naming import Identity

__all__ = [
    "CERTIFICATE_KEY",
    "EXIT_REPLACEABLE",
    "FOLDER",
    "SECRET_FOLDER",
    "RunMode",
    "files",
    "grace_of",
    "mode_of",
]

FOLDER = "/flux_operator"
"""Mount path of the ConfigMap: the Flux Operator's path, which users' programs rely on."""

SECRET_FOLDER = "/flux_curve"  # noqa: S105 where it is mounted
CERTIFICATE_KEY = "curve.cert"

EXIT_REPLACEABLE = 213
"""Exit code of a broker that was lost or asked to stop, and that another one may replace (``fq_again`` in
``environment.sh``)."""

DUMP = "flux-state.tgz"

_GRACE_S, _SAVING_S = 30, 120
_ENDING_S = 10
"""The part of a pod's termination grace period that the broker needs for itself."""

_SPARE_S = 2
"""The part of that which a broker does not get, so that its pod ends with our exit code before the kubelet
kills it."""
_LATE_NAMES_S = 30
"""How long a resolver remembers that a name does not exist, as CoreDNS does by default.
Nothing gives up before twice that."""

_SHELL = Path(__file__).parent / "shell"
_SCRIPTS = ("broker.sh", "environment.sh", "flux-init.sh", "job.sh", "ready.sh", "run.sh", "start.sh")
_HEAD = "# shellcheck shell=bash disable=SC2034\n"
_HOOKS = {
    "init": "init",
    "pre": "pre",
    "post": "post",
    "brokerPre": "broker_pre",
    "workerPre": "worker_pre",
    "servicePre": "service_pre",
}


class RunMode(enum.StrEnum):
    """What the leader runs (``fq_mode``)."""

    SINGLE = "single"
    """The command is submitted as one job of the whole cluster and watched."""
    LAUNCHER = "launcher"
    """The command is the initial program and submits its own jobs."""
    BATCH = "batch"
    """Every line is submitted as a job."""
    RAW = "raw"
    """The lines are a shell script."""
    SESSION = "session"
    """The command is submitted, and the instance continues after it."""
    IDLE = "idle"
    """There is no command: the instance runs for people and for the REST service."""


def mode_of(spec: MiniClusterSpec, runner: MiniClusterContainer, has_command: bool) -> RunMode:
    """Return what the leader runs.

    Parameters
    ----------
    spec
        The spec, for ``interactive``.
    runner
        The container that runs Flux.
    has_command
        True if there is a command; that of an annotated Job is not in ``runner``.
    """
    if not has_command:
        return RunMode.IDLE
    if spec.interactive:
        return RunMode.SESSION
    if runner.batch:
        return RunMode.RAW if runner.batch_raw else RunMode.BATCH
    return RunMode.LAUNCHER if runner.launcher else RunMode.SINGLE


def files(
    identity: Identity, spec: MiniClusterSpec, runner: int, *, argv_from_pod: bool, cluster_domain: str
) -> dict[str, str]:
    """Return all files except ``broker.toml``.

    Parameters
    ----------
    identity
        The owner of the cluster.
    spec
        A valid spec: exactly one container runs Flux.
    runner
        Index of that container.
    argv_from_pod
        True if the pod contains the command, as the pods of an annotated Job do.
    cluster_domain
        DNS domain of the Kubernetes cluster.

    Returns
    -------
    dict
        The text of each file by name; the keys of the ConfigMap.
    """
    container = spec.containers[runner]
    out = dict(_scripts())
    out["affinity.lua"] = broker.AFFINITY
    out["exports.sh"] = exports(spec.flux.environment or {})
    out |= _hooks("hook", container.commands)
    command = _command(container, "command.sh", out)
    mode = mode_of(spec, container, bool(command) or argv_from_pod)
    if mode is RunMode.BATCH:
        out["batch.sh"] = _batch(container.command)
    elif mode is RunMode.RAW:
        out["raw.sh"] = container.command if container.command.endswith("\n") else f"{container.command}\n"
    out["settings.sh"] = _settings(identity, spec, container, mode, command, cluster_domain)
    for position, sidecar in enumerate(spec.containers):
        if position != runner and not sidecar.no_wrap_entrypoint:
            out |= _sidecar(spec, sidecar)
    return out


def grace_of(spec: MiniClusterSpec) -> int:
    """Return the pods' termination grace period: that of ``podTemplate``, more if an instance is saved,
    else that of Kubernetes.
    """
    seconds = ((spec.pod_template or {}).get("spec") or {}).get("terminationGracePeriodSeconds")
    if isinstance(seconds, int):
        return seconds
    return _SAVING_S if spec.state is not None or spec.archive.path else _GRACE_S


def _settings(
    identity: Identity,
    spec: MiniClusterSpec,
    runner: MiniClusterContainer,
    mode: RunMode,
    command: tuple[str, ...],
    cluster_domain: str,
) -> str:
    flux, bursting = spec.flux, spec.flux.bursting
    lead = (
        bursting.lead_broker if bursting and bursting.lead_broker and bursting.lead_broker.address else None
    )
    leader = lead.address if lead else f"{identity.host(0)}.{identity.domain(cluster_domain)}"
    dump = _dump(spec)
    lines = [
        assignment("fq_mode", mode.value),
        assignment("fq_size", spec.size),
        assignment("fq_mount", flux.container.mount_path),
        assignment("fq_secret", SECRET_FOLDER),
        assignment("fq_logs", runner.logs),
        assignment("fq_leads", lead is None),
        assignment("fq_leader", leader),
        assignment("fq_port", lead.port if lead else broker.PORT),
        assignment("fq_patience", max(spec.form_timeout_seconds, _LATE_NAMES_S * 2)),
        assignment("fq_names_s", _LATE_NAMES_S),
        assignment("fq_grace", max(0, grace_of(spec) - _ENDING_S)),
        assignment("fq_ending_s", max(1, min(grace_of(spec), _ENDING_S) - _SPARE_S)),
        assignment("fq_view", not flux.container.disable),
        assignment("fq_python_path", flux.container.python_path),
        assignment("fq_fluxion", not flux.scheduler.simple),
        assignment("fq_serves", spec.serves_rest),
        assignment("fq_socket", not flux.disable_socket),
        assignment("fq_quiet", spec.logging.quiet),
        assignment("fq_strict", spec.logging.strict),
        assignment("fq_timed", spec.logging.timed),
        assignment("fq_complete_workers", flux.complete_workers),
        assignment("fq_dump", dump),
        array("fq_restores", [dump] if dump else []),
        array("fq_wrap", [f"--wrap={flux.wrap}"] if flux.wrap else []),
        array("fq_options", _options(spec, mode)),
        array("fq_flags", _flags(spec)),
        array(
            "fq_submit",
            [
                *(words(flux.submit_command) or ("flux", "submit")),
                *_tasks(spec),
                "--quiet",
                *_flags(spec),
                "--watch",
            ],
        ),
        array("fq_prefix", words(runner.commands.prefix)),
        array("fq_command", command),
    ]
    return _HEAD + "\n".join(lines) + "\n"


def _options(spec: MiniClusterSpec, mode: RunMode) -> list[str]:
    config = f"{spec.flux.container.mount_path}/config"
    options = [f"-Srundir={config}/run/flux", f"-Sstatedir={config}/var/lib/flux"]
    if not spec.flux.disable_socket:
        options.append(f"-Slocal-uri=local://{config}/run/flux/local")
    if mode is RunMode.IDLE:
        options.append("-Sbroker.rc2_none")
    quorum = spec.min_size or (spec.size if hosts_of(spec) > spec.size else 0)
    if quorum:
        options.append(f"-Sbroker.quorum={quorum}")
    if spec.logging.zeromq:
        options.append("-Stbon.zmqdebug=1")
    options.append(f"-Slog-stderr-level={0 if spec.logging.quiet else spec.flux.log_level}")
    options.append("-Slog-stderr-mode=local")
    return options


def _tasks(spec: MiniClusterSpec) -> list[str]:
    if spec.tasks == 0:
        return ["-N", str(spec.size)]
    if spec.tasks >= spec.size:
        return ["-N", str(spec.size), "-n", str(spec.tasks)]
    return ["-n", str(spec.tasks)]


def _flags(spec: MiniClusterSpec) -> list[str]:
    return [*words(spec.flux.option_flags), *(["-vvv"] if spec.logging.debug else [])]


def _dump(spec: MiniClusterSpec) -> str:
    if spec.state is not None:
        return f"{spec.state.volume.path.rstrip('/')}/{DUMP}"
    return spec.archive.path


def _command(container: MiniClusterContainer, key: str, out: dict[str, str]) -> tuple[str, ...]:
    """Return the words to start. A text becomes the file ``key``, which every pod has."""
    if container.commands.script:
        text = container.commands.script
        out[key] = text if text.endswith("\n") else f"{text}\n"
        return (f"{FOLDER}/{key}",) if text.startswith("#!") else ("/bin/bash", f"{FOLDER}/{key}")
    command = parse_command(container.command)
    if command.text and not container.batch:
        out[key] = command.text
        return ("/bin/bash", f"{FOLDER}/{key}")
    return command.words or (("batch",) if command else ())


def _batch(text: str) -> str:
    lines = ["# shellcheck shell=bash disable=SC2016"]
    for number, line, submitted in batch_lines(text):
        lines.append(" ".join(("fq_line", str(number), *(_quote(word) for word in (line, *submitted)))))
    return "\n".join(lines) + "\n"


def _sidecar(spec: MiniClusterSpec, sidecar: MiniClusterContainer) -> dict[str, str]:
    stem = f"sidecar-{sidecar.name}"
    out = _hooks(stem, sidecar.commands)
    command = _command(sidecar, f"{stem}.command.sh", out)
    lines = [
        assignment("fq_wait_socket", not spec.flux.no_wait_socket),
        array("fq_prefix", words(sidecar.commands.prefix)),
        array("fq_command", command),
    ]
    out[f"{stem}.settings.sh"] = _HEAD + "\n".join(lines) + "\n"
    return out


def _hooks(stem: str, commands: Commands) -> dict[str, str]:
    texts = ((hook, getattr(commands, field)) for hook, field in _HOOKS.items())
    return {
        f"{stem}.{hook}.sh": text if text.endswith("\n") else f"{text}\n"
        for hook, text in texts
        if text.strip()
    }


def _quote(word: str) -> str:
    return shlex.quote(word)


@cache
def _scripts() -> dict[str, str]:
    return {name: (_SHELL / name).read_text() for name in _SCRIPTS}
