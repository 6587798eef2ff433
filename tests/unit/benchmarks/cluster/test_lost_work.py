"""What counts as lost in the comparison of preemption, and what is created."""

from __future__ import annotations

import time

import msgspec
import pytest
from cluster.contenders import submitted_to_fluxqueue
from cluster.kueue_objects import submitted_to_kueue
from cluster.lost_work import URGENT, LostPods, arrivals
from support.builders import make_pod

from fluxqueue.api.pods import Pod
from fluxqueue.kube.object_cache import ObjectCache


def put(cache: ObjectCache[Pod], name: str, version: int, phase: str = "Running") -> None:
    built = make_pod(name).uid(name).owned_by("Job", "one").on_node("n").phase(phase)
    cache.apply(msgspec.convert(built.with_("metadata.resourceVersion", str(version)).build(), Pod))


def test_what_a_deleted_pod_did_is_lost_and_what_a_succeeded_one_did_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    cache: ObjectCache[Pod] = ObjectCache()
    lost = LostPods(cache)
    for name in ("ended", "deleted", "saved"):
        put(cache, name, 1)
    now[0] = 107.0
    put(cache, "ended", 2, "Succeeded")
    pods = {each.metadata.name: each for each in cache.list()}
    cache.remove(pods["ended"])
    cache.remove(pods["deleted"])
    lost.saved["one"] = 105.0
    cache.remove(pods["saved"])
    assert lost.done == {"ended": 7.0}
    assert lost.lost == {"deleted": 7.0, "saved": 2.0}


def test_all_contenders_get_the_same_jobs_but_for_labels_and_annotations() -> None:
    planned = arrivals(1)
    assert planned == arrivals(1)
    assert [each.at_s for each in planned] == sorted(each.at_s for each in planned)
    for work in (each.work for each in planned):
        ours, kueue = submitted_to_fluxqueue(work), submitted_to_kueue(work, "lost")
        assert ours["spec"] | {"suspend": True} == kueue["spec"]
        if work.least:
            assert ours["metadata"]["annotations"]["fluxqueue/min-pods"] == "2"
            assert kueue["metadata"]["annotations"] == {"kueue.x-k8s.io/job-min-parallelism": "2"}
    urgent = [each.work for each in planned if each.work.priority == URGENT]
    assert len(urgent) == 30
    assert len(planned) == 121
