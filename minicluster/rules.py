"""The validation of a MiniCluster: the rules that the Flux Operator only logs, and rules that nothing checked
before.

Two kinds of mistakes are found. The first are contradictions in the spec (section by section as the operator
validates them). The second are names and numbers that pass every schema and fail much later, in a pod that
cannot be created or a broker that hangs without a message: a volume without its mount path, two volumes at
one path, the name of a Service that another object of the same MiniCluster has already. Each is reported as
one sentence with the field's path and the remedy: at admission, while its author still reads it, or as a
condition if the object got past admission. Fields without an effect cause a warning, never a refusal, because
YAML written for the operator contains them.

Edits of a live MiniCluster are validated here too: fields from which its pods were created cannot be changed.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from fluxqueue.api.durations import InvalidDuration, parse_duration
from fluxqueue.api.miniclusters import (
    DEFAULT_DEADLINE_S,
    Bursting,
    MiniCluster,
    MiniClusterContainer,
    MiniClusterSpec,
)
from fluxqueue.api.objectsizes import too_large
from fluxqueue.api.texts import pictured
from fluxqueue.certs import curve
from fluxqueue.minicluster.bounds import bound_problems
from fluxqueue.minicluster.injection import host_name_problems
from fluxqueue.minicluster.overlay import overlay_problem
from fluxqueue.minicluster.reserved import reserved_problems
from fluxqueue.minicluster.trial import rendering_problems
from fluxqueue.minicluster.volume_rules import DNS_LABEL, LONGEST_LABEL, source_of, volume_problems

__all__ = ["LONGEST_NAME", "MiniClusterProblems", "edit_problems", "find_problems"]

LONGEST_NAME = 52
"""Maximum length of a name.
Hosts are the name, a dash and an index, and volumes are named after it: at most 63."""

_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_ENVIRONMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FLAT = frozenset({"", "custom", "kary:0"})
"""Topologies in which all brokers connect to the leader;
without parents in the configuration so do ``custom`` and Flux's own choice."""
_MOST_WARNINGS = 20
_LONGEST_SENTENCE, _KEPT_OF_SENTENCE = 1_000, 400

_LIVE_EDITABLE = frozenset({"size", "min_size", "cleanup", "deadline_seconds", "form_timeout_seconds"})
"""Fields that may be changed on a MiniCluster whose pods exist."""


@dataclass(frozen=True, slots=True)
class MiniClusterProblems:
    """Errors and warnings about a MiniCluster.

    Attributes
    ----------
    errors, warnings
        Sentences that begin with the path of a field.
    """

    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def find_problems(minicluster: MiniCluster) -> MiniClusterProblems:
    """Return the problems of a MiniCluster, of which only metadata and spec are read;
    without errors it can be created, queued and run.
    """
    spec = minicluster.spec
    if problem := too_large(spec):
        return MiniClusterProblems((pictured(problem),))
    errors = [
        *_identity(minicluster),
        *bound_problems(spec),
        *reserved_problems(spec),
        *_sizes(spec),
        *_overrides(spec),
        *_containers(spec),
        *_services(spec),
        *volume_problems(spec),
        *_service_names(minicluster),
        *_flux(spec),
    ] or [*rendering_problems(minicluster)]
    return MiniClusterProblems(
        tuple(map(_shortened, errors)),
        tuple(map(_shortened, itertools.islice(_warnings(spec), _MOST_WARNINGS))),
    )


def edit_problems(before: MiniCluster, after: MiniCluster, *, live: bool) -> tuple[str, ...]:
    """Return which changes of an edit are no longer possible.

    Parameters
    ----------
    before, after
        The former and the new MiniCluster.
    live
        True if its objects exist; before that everything may change.

    Returns
    -------
    tuple of str
        One sentence for each field; empty if the edit can be applied.
    """
    if not live:
        return ()
    problems = []
    for field in msgspec.structs.fields(MiniClusterSpec):
        if field.name in _LIVE_EDITABLE or getattr(before.spec, field.name) == getattr(
            after.spec, field.name
        ):
            continue
        problems.append(
            f"spec.{field.encode_name} cannot be changed after the MiniCluster has been created, because "
            "its pods were created from it: delete the MiniCluster and apply it again"
        )
    frozen = before.status.maximum_size or before.spec.maximum
    if after.spec.size > frozen:
        problems.append(
            f"spec.size {after.spec.size} is more than the {frozen} brokers that it was created for, whose "
            f"hosts are in its configuration: stay within {frozen}, "
            "or delete it and apply it with a larger maxSize"
        )
    return tuple(problems)


def _shortened(sentence: str) -> str:
    """Return a sentence without the middle of a long quoted value, and without control characters: it quotes
    a spec as it was written.

    The field is at its beginning, the remedy at its end.
    """
    sentence = pictured(sentence)
    return (
        sentence
        if len(sentence) <= _LONGEST_SENTENCE
        else f"{sentence[:_KEPT_OF_SENTENCE]} ... {sentence[-_KEPT_OF_SENTENCE:]}"
    )


def _identity(minicluster: MiniCluster) -> Iterator[str]:
    name = minicluster.metadata.name
    if not name:
        return  # generateName: there is no name yet, and the schema checks its limits
    if len(name) > LONGEST_NAME:
        yield (
            f"metadata.name is {len(name)} characters long and becomes part of host names: "
            f"use at most {LONGEST_NAME}"
        )
    if not _DNS_1035.fullmatch(name):
        yield (
            f"metadata.name {name!r} cannot be the name of a Service: use lower case letters, digits and "
            "dashes, beginning with a letter"
        )


def _sizes(spec: MiniClusterSpec) -> Iterator[str]:
    if spec.max_size and spec.max_size < spec.size:
        yield f"spec.maxSize {spec.max_size} is less than spec.size {spec.size}: raise it, or leave it out"
    if spec.min_size > spec.size:
        yield (
            f"spec.minSize {spec.min_size} is more than spec.size {spec.size}: "
            "so many brokers can never be online; lower it"
        )


def _overrides(spec: MiniClusterSpec) -> Iterator[str]:
    if spec.duration:
        try:
            parse_duration(spec.duration)
        except InvalidDuration as error:
            yield f"spec.duration: {error}"
    template = spec.pod_template or {}
    for key in template:
        if key not in ("metadata", "spec"):
            yield f"spec.podTemplate.{key} is no part of a pod template: it has metadata and spec"
    if problem := overlay_problem(template):
        yield f"spec.podTemplate: {problem}: write it as a pod template has it"
        return
    for key in ("schedulingGates", "nodeName"):
        if key in (template.get("spec") or {}):
            yield f"spec.podTemplate.spec.{key} is how the queue places pods: leave it out"
    yield from host_name_problems(template.get("spec") or {}, "spec.podTemplate.spec")
    if spec.state is not None and not source_of(spec.state.volume):
        yield (
            "spec.state.volume names no volume: give claimName, hostPath, "
            "csiDriver or another source that outlives the pods"
        )
    if spec.state is not None and not spec.state.volume.path:
        yield "spec.state.volume.path is missing: say where the leader mounts the volume"


def _containers(spec: MiniClusterSpec) -> Iterator[str]:
    if not spec.containers:
        yield "spec.containers is empty: name the container that runs the application"
        return
    if spec.runner_index is None:
        runners = sum(container.run_flux for container in spec.containers)
        yield (
            f"spec.containers: {runners} of {len(spec.containers)} have runFlux: true, exactly one must: "
            "it is the one Flux runs in"
        )
    seen: set[str] = set()
    for index, container in enumerate(spec.containers):
        path = f"spec.containers[{index}]"
        yield from _container(container, path)
        runner = index == spec.runner_index
        if container.launcher and container.batch:
            yield f"{path} has both launcher and batch: choose one"
        if runner and container.commands.script and container.command:
            yield f"{path} has both commands.script and command: choose one"
        if container.batch and not container.command:
            yield f"{path}.batch is true and command is empty: write one job on each line of it"
        if not runner and not container.name:
            yield f"{path}.name is missing: a container other than the one that runs Flux needs one"
        if not runner and container.name in seen:
            yield f"{path}.name {container.name!r} is used twice: give each container a name of its own"
        seen.add(container.name)


def _container(container: MiniClusterContainer, path: str) -> Iterator[str]:
    if container.name and not (DNS_LABEL.fullmatch(container.name) and len(container.name) <= LONGEST_LABEL):
        yield (
            f"{path}.name {container.name!r} cannot be the name of a container: "
            "use lower case letters, digits and dashes, at most 63"
        )
    for key in container.environment or ():
        if not _ENVIRONMENT.fullmatch(key):
            yield (
                f"{path}.environment: {key!r} cannot be the name of a variable: use letters, "
                "digits and underscores"
            )
    for key in container.secrets or ():
        if key in (container.environment or {}):
            yield f"{path}.secrets.{key} is also in environment: leave one out"
    for hook in ("post_start_exec", "pre_stop_exec"):
        text = getattr(container.life_cycle, hook)
        if any(character.isspace() for character in text):
            yield (
                f"{path}.lifeCycle.{_written(container.life_cycle, hook)} is run as one executable without "
                "arguments: name a script"
            )


def _services(spec: MiniClusterSpec) -> Iterator[str]:
    for index, container in enumerate(spec.services or ()):
        path = f"spec.services[{index}]"
        yield from _container(container, path)
        if not container.name:
            yield f"{path}.name is missing: a service always needs one"
        for field in ("pre", "broker_pre", "worker_pre", "script"):
            if getattr(container.commands, field):
                written = _written(container.commands, field)
                yield (
                    f"{path}.commands.{written} does nothing in a service, "
                    "which runs its image's own entrypoint: leave it out"
                )


def _written(struct: msgspec.Struct, field: str) -> str:
    return next(each.encode_name for each in msgspec.structs.fields(struct) if each.name == field)


def _service_names(minicluster: MiniCluster) -> Iterator[str]:
    """Check the Services of sidecars with ports, which are named after the MiniCluster and the sidecar."""
    name, spec = minicluster.metadata.name, minicluster.spec
    headless = minicluster.service_name
    if spec.network.headless_name and not (_DNS_1035.fullmatch(headless) and len(headless) <= LONGEST_LABEL):
        yield (
            f"spec.network.headlessName {headless!r} cannot be the name of a Service: letters, digits, "
            "dashes, beginning with a letter"
        )
    for index, container in enumerate(spec.containers):
        if index == spec.runner_index or not container.ports or not container.name:
            continue
        made = f"{name}-{container.name}"
        if len(made) > LONGEST_LABEL:
            yield (
                f"spec.containers[{index}].name makes the Service name {made!r} of {len(made)} characters: "
                f"shorten it to fit {LONGEST_LABEL}"
            )
        if made == headless:
            yield (
                f"spec.containers[{index}].name makes the Service {made!r}, which is the headless one: "
                "use another name"
            )


def _flux(spec: MiniClusterSpec) -> Iterator[str]:
    flux = spec.flux
    if flux.container.mount_path and not flux.container.mount_path.startswith("/"):
        yield (
            f"spec.flux.container.mountPath {flux.container.mount_path!r} is not absolute: "
            "begin it with a slash"
        )
    if flux.curve_cert:
        try:
            curve.read(flux.curve_cert)
        except curve.InvalidCertificate as error:
            yield f"spec.flux.curveCert: {error}"
    for key in flux.environment or ():
        if not _ENVIRONMENT.fullmatch(key):
            yield (
                f"spec.flux.environment: {key!r} cannot be the name of a variable: use letters, "
                "digits and underscores"
            )
    if flux.minimal_service and flux.topology not in _FLAT and not flux.broker_config:
        yield (
            f"spec.flux.topology {flux.topology!r} has brokers connect to others than the leader, and with "
            "spec.flux.minimalService only the leader has a name: leave one of them out"
        )
    bursting = flux.bursting
    if bursting is None:
        return
    if bursting.hostlist and bursting.clusters:
        yield "spec.flux.bursting has both hostlist and clusters: hostlist names all hosts; leave one out"
    for path, name in _burst_names(bursting):
        if name and not (DNS_LABEL.fullmatch(name) and len(name) <= LONGEST_LABEL):
            yield (
                f"spec.flux.bursting.{path} {name!r} is not how the name of a host may begin: use lower "
                "case letters, digits and dashes"
            )
    named = [cluster.name for cluster in bursting.clusters or () if cluster.name]
    for name in sorted({name for name in named if named.count(name) > 1}):
        yield (
            f"spec.flux.bursting.clusters: {name!r} is named twice: "
            "each cluster's hosts need names of their own"
        )


def _burst_names(bursting: Bursting) -> Iterator[tuple[str, str]]:
    if bursting.lead_broker is not None:
        yield "leadBroker.name", bursting.lead_broker.name
    for position, cluster in enumerate(bursting.clusters or ()):
        yield f"clusters[{position}].name", cluster.name


def _warnings(spec: MiniClusterSpec) -> Iterator[str]:
    """Yield warnings about fields that have no effect, or another one than their name suggests."""
    flux = spec.flux
    dead: Mapping[str, object] = {
        "spec.flux.arch": flux.arch,
        "spec.flux.mungeSecret": flux.munge_secret,
    }
    for path, value in dead.items():
        if value:
            yield f"{path} does nothing: it is a remnant of earlier versions of the operator; leave it out"
    if spec.pod.resources:
        yield (
            "spec.pod.resources does nothing, because a RuntimeClass defines the overhead that it meant: "
            "use containers[].resources"
        )
    if spec.pod.scheduler_name:
        yield (
            "spec.pod.schedulerName: the queue chooses the nodes; that scheduler only binds the pods to them"
        )
    if flux.broker_config:
        yield (
            "spec.flux.brokerConfig replaces the whole configuration: "
            "resources and hosts of the allocation must be in it"
        )
    if flux.curve_cert:
        yield (
            "spec.flux.curveCert is readable in the MiniCluster: "
            "leave it out and a certificate is made in a Secret"
        )
    if spec.deadline_seconds == 0:
        yield (
            f"spec.deadlineSeconds 0 counts as unset ({DEFAULT_DEADLINE_S} s): "
            "a Job that may run for no time never starts"
        )
    for index, container in enumerate(spec.containers):
        path = f"spec.containers[{index}]"
        if container.batch_raw and not container.batch:
            yield f"{path}.batchRaw does nothing without batch: set batch as well, or leave it out"
    for where, containers in (("containers", spec.containers), ("services", spec.services or [])):
        for index, container in enumerate(containers):
            for name, volume in (container.volumes or {}).items():
                if volume.only_path:
                    yield (
                        f"spec.{where}[{index}].volumes.{name} has only a path: it is an empty directory "
                        "that is deleted with its pod; name a claimName or hostPath to keep what is written "
                        "there"
                    )
