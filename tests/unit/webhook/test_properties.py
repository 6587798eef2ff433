"""Properties that hold for every object."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.admission import DEFAULTS, NOW, admit, operations_of
from support.builders import (
    DAEMONSET_CONTROLLER,
    JOB_CONTROLLER,
    REPLICASET_CONTROLLER,
    Json,
    make_job,
    make_pod,
    make_review,
)
from support.json_patches import apply_patch

from fluxqueue.api.fluxqueues import SchedulerName
from fluxqueue.webhook.choices import SchedulerChoices
from fluxqueue.webhook.decide import AdmissionSettings, decide
from fluxqueue.webhook.reviews import MalformedReview, read_review

OURS = frozenset(
    {
        "fluxqueue.seen",
        "fluxqueue/managed",
        "fluxqueue/queue",
        "fluxqueue/suspended-by",
        "fluxqueue/fluxion-nodes",
        "fluxqueue/allocation",
        "fluxqueue/gang-size",
        "fluxqueue/pin-until",
        "fluxqueue/jobid",
        "fluxqueue/scheduler",
    }
)

text = st.text(max_size=8)
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | text
)
anything: st.SearchStrategy[Any] = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3), max_leaves=8
)

KEYS = [
    "fluxqueue.seen",
    "fluxqueue/managed",
    "fluxqueue/queue",
    "fluxqueue/suspended-by",
    "fluxqueue/allocation",
    "fluxqueue/fluxion-nodes",
    "fluxqueue/gang-size",
    "fluxqueue/pin-until",
    "fluxqueue/jobid",
    "fluxqueue/scheduler",
    "fluxqueue/duration",
    "fluxqueue/priority",
    "batch.kubernetes.io/job-completion-index",
    "kueue.x-k8s.io/queue-name",
    "a~b/c",
]
VALUES = [
    "",
    "true",
    "false",
    "yes",
    "webhook",
    "30m",
    "soon",
    "7",
    "0",
    "1",
    "n1",
    "n1,n2",
    "n[1-3]",
    "none.invalid",
    "n[",
    "n1,,n2",
    "2100-01-01T00:00:00Z",
    "stock",
    "fluxion",
]
entries = st.none() | st.dictionaries(
    st.sampled_from(KEYS) | text, st.sampled_from(VALUES) | text, max_size=5
)
owners = st.none() | st.lists(
    st.fixed_dictionaries(
        {
            "kind": st.sampled_from(["Job", "DaemonSet", "ReplicaSet"]),
            "apiVersion": st.sampled_from(["batch/v1", "apps/v1"]),
            "controller": st.booleans(),
        }
    ),
    max_size=2,
)
metadata = st.fixed_dictionaries(
    {"namespace": st.sampled_from(["default", "kube-system"])},
    optional={
        "name": text,
        "generateName": text,
        "labels": entries,
        "annotations": entries,
        "ownerReferences": owners,
        "ofTomorrow": anything,
    },
)
gates = st.none() | st.lists(
    st.fixed_dictionaries({"name": st.sampled_from(["fluxqueue", "other", "third"])}), max_size=3
)
requirement = st.fixed_dictionaries(
    {
        "key": st.sampled_from(["metadata.name", "zone"]),
        "operator": st.sampled_from(["In", "NotIn"]),
        "values": st.lists(st.sampled_from(["n1", "n2"]), max_size=2),
    }
)
term = st.fixed_dictionaries(
    {},
    optional={
        "matchFields": st.none() | st.lists(requirement, max_size=2),
        "matchExpressions": st.none() | st.lists(requirement, max_size=2),
    },
)
selector = st.none() | st.fixed_dictionaries(
    {}, optional={"nodeSelectorTerms": st.none() | st.lists(term, max_size=3)}
)
node_affinity = st.none() | st.fixed_dictionaries(
    {}, optional={"requiredDuringSchedulingIgnoredDuringExecution": selector, "preferred": anything}
)
affinity = anything | st.fixed_dictionaries(
    {}, optional={"nodeAffinity": node_affinity, "podAffinity": anything}
)
pods = st.fixed_dictionaries(
    {
        "apiVersion": st.just("v1"),
        "kind": st.just("Pod"),
        "metadata": metadata,
        "spec": st.fixed_dictionaries(
            {},
            optional={
                "schedulingGates": gates,
                "affinity": affinity,
                "nodeName": st.sampled_from(["", "n1"]),
                "schedulerName": st.sampled_from(["", "default-scheduler", "FluxionScheduler", "volcano"]),
                "ofTomorrow": anything,
            },
        ),
    }
)
jobs = st.fixed_dictionaries(
    {
        "apiVersion": st.just("batch/v1"),
        "kind": st.just("Job"),
        "metadata": metadata,
        "spec": st.fixed_dictionaries(
            {
                "template": st.fixed_dictionaries(
                    {},
                    optional={"metadata": st.none() | metadata, "spec": st.just({}), "ofTomorrow": anything},
                )
            },
            optional={
                "suspend": st.none() | st.booleans(),
                "managedBy": st.none() | st.sampled_from(["", "x"]),
                "ofTomorrow": anything,
            },
        ),
    }
)
released = st.builds(
    lambda pod, gated, nodes, index, pin_until, decided: {
        **pod,
        "metadata": {
            **pod["metadata"],
            "labels": {"fluxqueue/jobid": "7", "batch.kubernetes.io/job-completion-index": index},
            "ownerReferences": [{"kind": "Job", "apiVersion": "batch/v1", "controller": True}],
            "annotations": {
                "fluxqueue/allocation": "7",
                "fluxqueue/fluxion-nodes": nodes,
                "fluxqueue/pin-until": pin_until,
                "batch.kubernetes.io/job-completion-index": index,
                **decided,
            },
        },
        "spec": {**pod["spec"], "nodeName": "", "schedulingGates": [{"name": "fluxqueue"}] if gated else []},
    },
    pods,
    st.booleans(),
    st.sampled_from(["n1", "n1,n2", "n[1-3]", "n[3,1,1,2]", "none.invalid,n2", "n["]),
    st.sampled_from(["0", "1", "2", "3", "x"]),
    st.sampled_from(["2100-01-01T00:00:00Z", "2020-01-01T00:00:00Z", ""]),
    st.sampled_from(
        [
            {},
            {"fluxqueue/scheduler": "fluxion"},
            {"fluxqueue/scheduler": "stock"},
            {"fluxqueue/gang-size": "3"},
        ]
    ),
)
"""Pods as the Job controller creates them from a released template:
few random objects claim an allocation."""
known = st.sampled_from(
    [
        DEFAULTS,
        AdmissionSettings(choices=SchedulerChoices(SchedulerName.STOCK)),
        AdmissionSettings(
            choices=SchedulerChoices(
                SchedulerName.FLUXION, {"true": SchedulerName.STOCK}, {"default": "webhook"}
            )
        ),
        AdmissionSettings(
            choices=SchedulerChoices(
                SchedulerName.STOCK, {"default": SchedulerName.FLUXION, "webhook": SchedulerName.STOCK}
            )
        ),
    ]
)
users = st.sampled_from(
    [
        "alice",
        JOB_CONTROLLER,
        DAEMONSET_CONTROLLER,
        REPLICASET_CONTROLLER,
        "system:kube-controller-manager",
        "system:node:n1",
    ]
)


def without_ours(document: Json) -> Json:
    """Return the object without everything that we may write."""
    rest = copy.deepcopy(document)
    templates = [rest["spec"].get("template")] if rest["kind"] == "Job" else []
    for holder in [rest, *(template for template in templates if template is not None)]:
        meta = holder.get("metadata") or {}
        for field in ("labels", "annotations"):
            meta[field] = {key: value for key, value in (meta.get(field) or {}).items() if key not in OURS}
        holder["metadata"] = meta
    if rest["kind"] == "Job":
        rest["spec"].pop("suspend", None)
        return rest
    spec = rest["spec"]
    if spec.get("schedulerName") in ("FluxionScheduler", "default-scheduler"):
        spec["schedulerName"] = ""
    spec.setdefault("schedulerName", "")
    spec["schedulingGates"] = [
        gate for gate in spec.get("schedulingGates") or [] if gate["name"] != "fluxqueue"
    ]
    if isinstance(spec.get("affinity"), dict):
        spec["affinity"].pop("nodeAffinity", None)
    spec["affinity"] = spec.get("affinity") or {}
    return rest


@given(
    body=anything,
    where=st.sampled_from(
        ["", "request", "request.object", "request.object.metadata", "request.object.spec", "request.kind"]
    ),
)
@settings(deadline=None)
def test_any_body_is_answered_or_called_malformed(body: Any, where: str) -> None:
    for thing in (make_pod(), make_job()):
        document: Any = make_review(thing).with_(where, body).build() if where else body
        try:
            review = read_review(json.dumps(document).encode())
        except MalformedReview:
            continue
        decide(review, DEFAULTS, NOW)


@given(body=st.binary(max_size=64))
def test_any_bytes_are_called_malformed(body: bytes) -> None:
    with pytest.raises(MalformedReview):
        read_review(body)


@given(document=pods | jobs | released, user=users, knowing=known)
@settings(deadline=None, max_examples=400)
def test_twice_is_once(document: Json, user: str, knowing: AdmissionSettings) -> None:
    once = admit(document, user=user, settings=knowing)
    if once.decision.allowed:
        again = admit(once.after, user=user, settings=knowing)
        assert again.patch == []
        assert again.decision.outcome is once.decision.outcome


@given(document=released, first=known, second=known)
@settings(deadline=None, max_examples=200)
def test_new_choices_between_two_passes_move_no_pinned_pod(
    document: Json, first: AdmissionSettings, second: AdmissionSettings
) -> None:
    once = admit(document, user=JOB_CONTROLLER, settings=first)
    if once.decision.outcome == "pinned" and once.after["spec"].get("schedulerName") == "FluxionScheduler":
        again = admit(
            once.after,
            user=JOB_CONTROLLER,
            settings=replace(second, choices=second.choices or SchedulerChoices(SchedulerName.STOCK)),
        )
        assert (again.decision.outcome, again.patch) == ("pinned", [])


@given(document=pods | released, user=users, knowing=known)
@settings(deadline=None, max_examples=300)
def test_the_scheduler_is_set_once_and_never_over_another_name(
    document: Json, user: str, knowing: AdmissionSettings
) -> None:
    admitted = admit(document, user=user, settings=knowing)
    own = document["spec"].get("schedulerName", "")
    if (
        own in ("", "default-scheduler")
        and admitted.decision.outcome in ("pinned", "held")
        and knowing.choices is not None
    ):
        assert admitted.after["spec"].get("schedulerName", "") in (own, "FluxionScheduler")
    else:
        assert admitted.after["spec"].get("schedulerName", "") == own


@given(document=pods | jobs | released, user=users, knowing=known)
@settings(deadline=None, max_examples=300)
def test_what_is_not_ours_is_never_touched(document: Json, user: str, knowing: AdmissionSettings) -> None:
    admitted = admit(document, user=user, settings=knowing)
    assert without_ours(admitted.after) == without_ours(admitted.before)


@given(document=pods | released, user=users, knowing=known)
@settings(deadline=None, max_examples=300)
def test_whatever_the_user_required_of_nodes_is_still_required(
    document: Json, user: str, knowing: AdmissionSettings
) -> None:
    admitted = admit(document, user=user, settings=knowing)
    by_us = knowing.choices is not None and admitted.after["spec"].get("schedulerName") == "FluxionScheduler"
    if admitted.decision.outcome != "pinned" or by_us:
        assert admitted.after["spec"].get("affinity") == admitted.before["spec"].get("affinity")
        return
    selector = ((document["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    before = selector.get("nodeSelectorTerms") or []
    assert len(admitted.terms) == max(1, len(before))
    for old, new in zip(before, admitted.terms, strict=False):
        assert (old.get("matchExpressions") or []) == (new.get("matchExpressions") or [])
        assert all(field in new["matchFields"] for field in old.get("matchFields") or [])


@given(document=pods | released, user=users, knowing=known)
@settings(deadline=None, max_examples=200)
def test_no_ungated_pod_leaves_without_being_exempt_pinned_or_refused(
    document: Json, user: str, knowing: AdmissionSettings
) -> None:
    admitted = admit(document, user=user, settings=knowing)
    if admitted.decision.outcome == "held":
        assert "fluxqueue" in admitted.gates


@given(document=pods | jobs, user=users)
@settings(deadline=None)
def test_operations_apply_in_any_case(document: Json, user: str) -> None:
    review = read_review(make_review(document, user=user).body())
    apply_patch(document, operations_of(decide(review, DEFAULTS, NOW)))
