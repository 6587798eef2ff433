"""The files that every pod of a Flux cluster finds under `FOLDER`: scripts that never differ, and settings that do.

The scripts stand in ``shell/`` as they are run, without a placeholder in them. What differs between clusters is ``settings.sh``, in which
every value is quoted, and what people wrote (hooks, scripts, batches, commands that need a shell) in files of its own. So no text is ever
expanded on its way into a script, and what can be checked of the scripts is checked once, where they stand.
"""

from __future__ import annotations

import enum
import shlex
from functools import cache
from pathlib import Path

from fluxqueue.api.miniclusters import Commands, MiniClusterContainer, MiniClusterSpec
from fluxqueue.minicluster import broker
from fluxqueue.minicluster.commands import array, assignment, batch_lines, exports, parse_command, words
from fluxqueue.minicluster.naming import Identity

__all__ = ["AGAIN", "CERTIFICATE_KEY", "FOLDER", "SECRET_FOLDER", "Mode", "files", "grace_of", "mode_of"]

FOLDER = "/flux_operator"
"""Where the ConfigMap is mounted: the Flux Operator's place, which its users' programs know."""

SECRET_FOLDER = "/flux_curve"  # noqa: S105 where it is mounted
CERTIFICATE_KEY = "curve.cert"

AGAIN = 213
"""Exit code of a broker that was lost or asked to stop, and that another one may replace (``fq_again`` in ``environment.sh``)."""

DUMP = "flux-state.tgz"

_GRACE_S, _SAVING_S = 30, 120
_ENDING_S = 10
"""Of the time a pod is given to stop, what its broker needs for itself."""

_SHELL = Path(__file__).parent / "shell"
_SCRIPTS = ("environment.sh", "flux-init.sh", "job.sh", "ready.sh", "run.sh", "start.sh")
_HEAD = "# shellcheck shell=bash disable=SC2034\n"
_HOOKS = {
    "init": "init",
    "pre": "pre",
    "post": "post",
    "brokerPre": "broker_pre",
    "workerPre": "worker_pre",
    "servicePre": "service_pre",
}


class Mode(enum.StrEnum):
    """What the leader does (``fq_mode``)."""

    SINGLE = "single"
    """The command is submitted as one job of the whole cluster, and watched."""
    LAUNCHER = "launcher"
    """The command is the initial program and submits its own jobs."""
    BATCH = "batch"
    """Every line is submitted as a job."""
    RAW = "raw"
    """The lines are a shell script."""
    SESSION = "session"
    """The command is submitted, then the instance stays."""
    IDLE = "idle"
    """There is no command: the instance stays, for people and for the REST service."""


def mode_of(spec: MiniClusterSpec, runner: MiniClusterContainer, has_command: bool) -> Mode:
    """What the leader does.

    Parameters
    ----------
    spec
        For ``interactive``.
    runner
        The container that runs Flux.
    has_command
        Whether there is anything to run; a Job's command is not in ``runner``.
    """
    if not has_command:
        return Mode.IDLE
    if spec.interactive:
        return Mode.SESSION
    if runner.batch:
        return Mode.RAW if runner.batch_raw else Mode.BATCH
    return Mode.LAUNCHER if runner.launcher else Mode.SINGLE


def files(identity: Identity, spec: MiniClusterSpec, runner: int, *, argv_from_pod: bool, cluster_domain: str) -> dict[str, str]:
    """Everything but ``broker.toml``.

    Parameters
    ----------
    identity
        Whose cluster it is.
    spec
        Valid: exactly one container runs Flux.
    runner
        Index of that container.
    argv_from_pod
        Whether the command's words come with the pod, as those of an annotated Job do.
    cluster_domain
        Of the Kubernetes cluster's DNS.

    Returns
    -------
    dict
        File name -> text, the keys of the ConfigMap.
    """
    container = spec.containers[runner]
    out = dict(_scripts())
    out["affinity.lua"] = broker.AFFINITY
    out["exports.sh"] = exports(spec.flux.environment or {})
    out |= _hooks("hook", container.commands)
    command = _command(container, "command.sh", out)
    mode = mode_of(spec, container, bool(command) or argv_from_pod)
    if mode is Mode.BATCH:
        out["batch.sh"] = _batch(container.command)
    elif mode is Mode.RAW:
        out["raw.sh"] = container.command if container.command.endswith("\n") else f"{container.command}\n"
    out["settings.sh"] = _settings(identity, spec, container, mode, command, cluster_domain)
    for place, sidecar in enumerate(spec.containers):
        if place != runner and not sidecar.no_wrap_entrypoint:
            out |= _sidecar(spec, sidecar)
    return out


def grace_of(spec: MiniClusterSpec) -> int:
    """Seconds its pods are given to stop: what ``podTemplate`` says, more where an instance is saved, else what Kubernetes gives."""
    said = ((spec.pod_template or {}).get("spec") or {}).get("terminationGracePeriodSeconds")
    if isinstance(said, int):
        return said
    return _SAVING_S if spec.state is not None or spec.archive.path else _GRACE_S


def _settings(
    identity: Identity, spec: MiniClusterSpec, runner: MiniClusterContainer, mode: Mode, command: tuple[str, ...], cluster_domain: str
) -> str:
    flux, bursting = spec.flux, spec.flux.bursting
    lead = bursting.lead_broker if bursting and bursting.lead_broker and bursting.lead_broker.address else None
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
        assignment("fq_patience", spec.form_timeout_seconds),
        assignment("fq_grace", max(0, grace_of(spec) - _ENDING_S)),
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
        array("fq_options", _options(identity, spec, mode)),
        array("fq_flags", _flags(spec)),
        array("fq_submit", [*(words(flux.submit_command) or ("flux", "submit")), *_tasks(spec), "--quiet", *_flags(spec), "--watch"]),
        array("fq_prefix", words(runner.commands.prefix)),
        array("fq_command", command),
    ]
    return _HEAD + "\n".join(lines) + "\n"


def _options(identity: Identity, spec: MiniClusterSpec, mode: Mode) -> list[str]:
    config = f"{spec.flux.container.mount_path}/config"
    options = [f"-Srundir={config}/run/flux", f"-Sstatedir={config}/var/lib/flux"]
    if not spec.flux.disable_socket:
        options.append(f"-Slocal-uri=local://{config}/run/flux/local")
    if mode is Mode.IDLE:
        options.append("-Sbroker.rc2_none")
    quorum = spec.min_size or (spec.size if len(broker.hosts(identity, spec)) > spec.size else 0)
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
    """The words to start; a text becomes the file ``key``, which every pod has."""
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
    return {f"{stem}.{hook}.sh": text if text.endswith("\n") else f"{text}\n" for hook, text in texts if text.strip()}


def _quote(word: str) -> str:
    return shlex.quote(word)


@cache
def _scripts() -> dict[str, str]:
    return {name: (_SHELL / name).read_text() for name in _SCRIPTS}
