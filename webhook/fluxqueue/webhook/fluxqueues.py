"""What a FluxQueue must not say, beyond its schema.

Labels are the trap: a selector with a key or value that no object can carry is accepted by the schema, and then finds nothing, for ever.
Whether a selector finds nodes *now* is another matter, which nodes that come and go decide: the queue says that in the FluxQueue's
status (condition ``Starting``, reason ``NoNodes``) and in its workloads' reason ``Unsatisfiable``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from fluxqueue.api.fluxqueues import FluxQueue, FluxQueueSpec, Limits
from fluxqueue.webhook.opinions import Opinion

__all__ = ["judge_fluxqueue"]

_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_DOMAIN = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_NAMESPACE = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_LONGEST_DOMAIN = 253


def judge_fluxqueue(queue: FluxQueue) -> Opinion:
    """Say what is wrong with the rules of a queue.

    Parameters
    ----------
    queue
        As it would be stored.
    """
    spec = queue.spec
    return Opinion(errors=tuple(_errors(spec)), warnings=tuple(_warnings(spec)))


def _errors(spec: FluxQueueSpec) -> Iterator[str]:
    yield from _bad_labels("spec.nodeSelector", spec.node_selector or {}, "no node can have it")
    members = spec.namespaces
    if members is not None:
        yield from _bad_labels("spec.namespaces.matchLabels", members.match_labels or {}, "no namespace can have it")
        for name in members.names or ():
            if not _NAMESPACE.fullmatch(name):
                yield f"spec.namespaces.names: {name!r} is no name of a namespace: correct it or take it out"


def _bad_labels(field: str, labels: Mapping[str, str], consequence: str) -> Iterator[str]:
    for key, value in labels.items():
        if not _is_label_key(key):
            yield f"{field}: {key!r} is no key of a label, {consequence}: correct it or take it out"
        elif value and not _NAME.fullmatch(value):
            yield f"{field}: {value!r} is no value of the label {key}, {consequence}: correct it or take it out"


def _is_label_key(key: str) -> bool:
    domain, slash, name = key.rpartition("/")
    if slash and not (len(domain) <= _LONGEST_DOMAIN and _DOMAIN.fullmatch(domain)):
        return False
    return _NAME.fullmatch(name) is not None


def _warnings(spec: FluxQueueSpec) -> Iterator[str]:
    limits = spec.limits
    if limits is None:
        return
    yield from _zeroes("spec.limits", limits, "nothing of this queue can start: to stop it for a while set spec.state to held")
    if limits.per_namespace is not None:
        yield from _zeroes("spec.limits.perNamespace", limits.per_namespace, "nothing of this queue can start")
        for name in ("running", "nodes", "cores"):
            whole, part = getattr(limits, name), getattr(limits.per_namespace, name)
            if whole is not None and part is not None and part > whole:
                yield f"spec.limits.perNamespace.{name} is {part}, but the whole queue may use {whole}: the lower one counts"


def _zeroes(field: str, limits: Limits, consequence: str) -> Iterator[str]:
    for name in ("running", "nodes", "cores"):
        if getattr(limits, name) == 0:
            yield f"{field}.{name} is 0: {consequence}"
