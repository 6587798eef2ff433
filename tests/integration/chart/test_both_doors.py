"""Policies and webhook agree: the policies refuse a claimed allocation exactly if the webhook does.

Every combination of key, place, value, controller and requester is put to the webhook's decision and, without
a webhook in between, to the API server. So it does not matter whether the webhook answers
(``failurePolicy: Ignore``), and nobody is refused by one what the other lets through. What the queue's own
identity creates is in `test_queue_identity`.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator

import pytest
from support.admission import admit
from support.builders import JOB_CONTROLLER, REPLICASET_CONTROLLER, Builder, make_job, make_pod
from support.chart_installation import CONTROLLER_MANAGER, MANAGED, Installation, Person

from fluxqueue.api import names
from fluxqueue.local.controlplane import ControlPlane
from fluxqueue.webhook.decisions import AdmissionOutcome

REQUESTERS = ("alice", JOB_CONTROLLER, REPLICASET_CONTROLLER, CONTROLLER_MANAGER)
FORBIDDEN = re.compile(r'"(case-\d+)" is forbidden: ValidatingAdmissionPolicy')


def pods() -> Iterator[Builder]:
    for key, place, value in itertools.product(names.ALLOCATION_KEYS, ("annotation", "label"), ("7", "")):
        marked = getattr(make_pod(), place)(key, value)
        yield marked
        yield marked.owned_by("Job")
        yield marked.owned_by("Job", controller=False)
        yield marked.owned_by("Job", api_version="example.com/v1")
        yield marked.owned_by("ReplicaSet")
    yield make_pod().gate(names.GATE)
    yield make_pod().owned_by("Job")


def jobs() -> Iterator[Builder]:
    places = ("annotation", "label", "pod_annotation", "pod_label")
    for key, place, value in itertools.product(names.ALLOCATION_KEYS, places, ("7", "")):
        yield getattr(make_job().suspended(), place)(key, value)
    yield make_job().suspended()


@pytest.mark.parametrize("requester", REQUESTERS)
def test_policies_refuse_what_the_webhook_refuses_and_nothing_else(
    installation: Installation, cluster: ControlPlane, root: Person, requester: str
) -> None:
    if requester != "alice":
        root.run(
            "create",
            "rolebinding",
            f"both-doors-{REQUESTERS.index(requester)}",
            "--clusterrole=edit",
            f"--user={requester}",
        )
    cases = {f"case-{number}": case for number, case in enumerate(itertools.chain(pods(), jobs()))}
    cases = {name: case.with_("metadata.name", name).namespace(MANAGED) for name, case in cases.items()}
    by_webhook = {
        name
        for name, case in cases.items()
        if admit(case, user=requester).decision.outcome is AdmissionOutcome.REFUSED
    }
    listed = json.dumps(
        {"apiVersion": "v1", "kind": "List", "items": [case.build() for case in cases.values()]}
    )
    answer = Person(cluster, requester).run("create", "--dry-run=server", "-f", "-", stdin=listed)
    by_policy = set(FORBIDDEN.findall(answer.output))
    assert {name for name in cases if name in by_policy} == by_webhook, answer.output[:2000]
    assert 0 < len(by_webhook) < len(cases)
    assert answer.output.count("Error") == len(by_policy), "nothing else stands in the way"
