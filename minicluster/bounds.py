"""Size limits of the fields of a MiniCluster, so that the rendered objects and the rendering stay small.

The schema limits each field. This module checks what the schema cannot express, such as the number of hosts,
counted without expanding a hostlist. The size of all fields together, and of the parts that the schema does
not inspect (``podTemplate``, ``resources``, ``securityContext``), has been checked before
(`fluxqueue.api.objectsizes.too_large`). All other code that reads a MiniCluster may rely on these limits.
"""

from __future__ import annotations

from collections.abc import Iterator

from fluxqueue.api.hostlists import InvalidHostlist, parse
from fluxqueue.api.miniclusters import MiniClusterSpec

__all__ = ["MOST_BROKERS", "bound_problems", "hosts_of"]

MOST_BROKERS = 10_000
"""Maximum number of hosts: its own at ``maxSize``, and those that others start."""

_LONGEST_COMMAND = 65_536
_LONGEST_OPTIONS = 4_096
"""Maximum characters of a command, and of a field that is split into words."""

_MOST_LINES = 4_096
"""Maximum number of jobs of a batch."""

_LARGEST_NUMBER = 2**31 - 1
_LARGEST_PORT = 65_535


def bound_problems(spec: MiniClusterSpec) -> Iterator[str]:
    """Yield a sentence for each exceeded limit of a field, and of the number of hosts,
    with path and remedy.
    """
    for path, number, lowest, highest in _numbers(spec):
        if not lowest <= number <= highest:
            yield f"spec.{path} is {number}: use a number from {lowest} to {highest}"
    for path, text, longest in _taken_apart(spec):
        if len(text) > longest:
            yield (
                f"spec.{path} is {len(text)} characters long: use at most {longest}, "
                "and a script in the image or a volume for more"
            )
    for place, container in enumerate(spec.containers):
        lines = container.command.count("\n")
        if container.batch and not container.batch_raw and lines > _MOST_LINES:
            yield (
                f"spec.containers[{place}].command has {lines} lines: "
                f"a batch has at most {_MOST_LINES}; use batchRaw for more"
            )
    try:
        hosts = hosts_of(spec)
    except InvalidHostlist as error:
        yield f"spec.flux.bursting.hostlist: {error}"
        return
    if hosts > MOST_BROKERS and spec.flux.bursting is not None:
        own = "spec.maxSize" if spec.max_size else "spec.size"
        yield (
            f"{own} and spec.flux.bursting come to {hosts} hosts, "
            f"and a MiniCluster may have {MOST_BROKERS} in all: make it smaller"
        )


def hosts_of(spec: MiniClusterSpec) -> int:
    """Return how many hosts a MiniCluster names, without expanding hostlists.

    Raises
    ------
    InvalidHostlist
        ``flux.bursting.hostlist`` is not a hostlist, or names more than `MOST_BROKERS`.
    """
    bursting = spec.flux.bursting
    own = spec.maximum
    if bursting is None:
        return own
    if bursting.hostlist:
        return len(parse(bursting.hostlist, at_most=MOST_BROKERS))
    lead = bursting.lead_broker.size if bursting.lead_broker else 0
    return own + lead + sum(cluster.size or spec.size for cluster in bursting.clusters or ())


def _numbers(spec: MiniClusterSpec) -> Iterator[tuple[str, int, int, int]]:
    """Yield path, value, minimum and maximum of each number."""
    yield "size", spec.size, 1, MOST_BROKERS
    yield "maxSize", spec.max_size, 0, MOST_BROKERS
    yield "minSize", spec.min_size, 0, MOST_BROKERS
    yield "tasks", spec.tasks, 0, _LARGEST_NUMBER
    yield "backoffLimit", spec.backoff_limit, 0, _LARGEST_NUMBER
    yield "deadlineSeconds", spec.deadline_seconds, 0, _LARGEST_NUMBER
    yield "formTimeoutSeconds", spec.form_timeout_seconds, 1, 86_400
    yield "restful.port", spec.restful.port, 1, _LARGEST_PORT
    yield "flux.logLevel", spec.flux.log_level, 0, 7
    yield "priority", spec.priority or 0, -_LARGEST_NUMBER, _LARGEST_NUMBER
    for field, containers in (("containers", spec.containers), ("services", spec.services or [])):
        for place, container in enumerate(containers):
            for port in container.ports or ():
                yield f"{field}[{place}].ports", port, 1, _LARGEST_PORT
    bursting = spec.flux.bursting
    if bursting is None:
        return
    if bursting.lead_broker is not None:
        yield "flux.bursting.leadBroker.size", bursting.lead_broker.size, 1, _LARGEST_NUMBER
        yield "flux.bursting.leadBroker.port", bursting.lead_broker.port, 1, _LARGEST_PORT
    for place, cluster in enumerate(bursting.clusters or ()):
        yield f"flux.bursting.clusters[{place}].size", cluster.size, 0, _LARGEST_NUMBER


def _taken_apart(spec: MiniClusterSpec) -> Iterator[tuple[str, str, int]]:
    """Yield path, text and maximum characters of fields that are split into words."""
    yield "flux.submitCommand", spec.flux.submit_command, _LONGEST_OPTIONS
    yield "flux.optionFlags", spec.flux.option_flags, _LONGEST_OPTIONS
    for field, containers in (("containers", spec.containers), ("services", spec.services or [])):
        for place, container in enumerate(containers):
            yield f"{field}[{place}].command", container.command, _LONGEST_COMMAND
            yield f"{field}[{place}].commands.prefix", container.commands.prefix, _LONGEST_OPTIONS
