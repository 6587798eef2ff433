"""flux-sched's calls, in the examples of its reference."""

from __future__ import annotations

import json

import pytest
from support.fluxion_builders import flat_jgf, jobspec, nodes, slot

from fluxqueue.fluxion.compat.requests import CompatMatch, MatchRequestKind
from fluxqueue.fluxion.engine.engine import Engine
from fluxqueue.fluxion.errors import Errno, InitError, MatchError, UnknownJob, UnknownPath
from fluxqueue.fluxion.messages import CallContext

ALLOCATE, RESERVE = MatchRequestKind.ALLOCATE, MatchRequestKind.ALLOCATE_ORELSE_RESERVE


def loaded(policy: str, count: int = 3, cores: int = 4, **layout: int) -> Engine:
    made = Engine()
    made.init(policy, jgf=flat_jgf(count, cores, **layout))
    return made


def taken(match: CompatMatch) -> str:
    """Cores by node: ``n0 0,1 n2 3``."""
    out: dict[str, list[str]] = {}
    for path, _, exclusive in match.vertices:
        *_, node, leaf = path.split("/")
        if exclusive and leaf.startswith("core"):
            out.setdefault(f"n{node.removeprefix('node')}", []).append(leaf.removeprefix("core"))
    return " ".join(f"{node} {','.join(ids)}" for node, ids in out.items())


@pytest.mark.parametrize(
    ("policy", "three", "then"),
    [
        ("low", ["n0 0,1", "n0 2,3", "n1 0,1"], ["n0 0 n1 0", "n2 0,1,2"]),
        ("high", ["n2 2,3", "n2 0,1", "n1 2,3"], ["n0 3 n1 3", "n2 1,2,3"]),
        ("lonode", ["n0 0,1", "n0 2,3", "n1 0,1"], ["n0 0,1", "n1 0,1,2"]),
        ("hinode", ["n2 2,3", "n2 0,1", "n1 2,3"], ["n2 2,3", "n1 1,2,3"]),
        ("first", ["n2 2,3", "n1 2,3", "n0 2,3"], ["n2 2,3", "n1 1,2,3"]),
        ("lonodex", ["n0 0,1,2,3", "n1 0,1,2,3", "n2 0,1,2,3"], ["n0 0,1,2,3", "n1 0,1,2,3"]),
        ("firstnodex", ["n2 0,1,2,3", "n1 0,1,2,3", "n0 0,1,2,3"], ["n2 0,1,2,3", "n1 0,1,2,3"]),
        ("locality", ["n0 2,3", "n0 0,1", "n1 2,3"], ["n0 2,3", "n1 1,2,3"]),
        ("variation", ["n0 0,1", "n0 2,3", "n1 0,1"], ["n0 0,1", "n1 0,1,2"]),
    ],
)
def test_policies_take_what_flux_sched_takes(policy: str, three: list[str], then: list[str]) -> None:
    made = loaded(policy)
    assert [taken(made.match(jobspec(nodes(1, slot(1, core=2))), ALLOCATE)) for _ in range(3)] == three
    made = loaded(policy)
    assert [taken(made.match(jobspec(slot(n, core=c)), ALLOCATE)) for n, c in ((2, 1), (1, 3))] == then


def test_ties_are_ordered_as_by_an_unstable_sort() -> None:
    made = loaded("low", 20, 1)
    request = jobspec(slot(3, core=1))
    assert taken(made.match(request, ALLOCATE)) == "n10 0 n18 0 n19 0"
    assert taken(made.match(request, ALLOCATE)) == "n8 0 n16 0 n17 0"


def test_policy_first_ignores_cancelled_jobs() -> None:
    made = loaded("first")
    for cores in (1, 2, 3):
        made.match(jobspec(nodes(1, slot(1, core=cores))), ALLOCATE)
    one = jobspec(nodes(1, slot(1, core=1)))
    assert taken(made.match(one, ALLOCATE)).startswith("n2")
    made.cancel(3)
    assert [taken(made.match(one, ALLOCATE))[:2] for _ in range(2)] == ["n2", "n1"]


def test_reservations_have_the_start_of_flux_sched() -> None:
    made = loaded("lonode", 1)

    def at(cores: int, duration: int, request: MatchRequestKind = RESERVE) -> int:
        return made.match(jobspec(slot(1, core=cores), duration=duration), request).at

    assert [at(2, 100), at(2, 50), at(2, 10), at(4, 10), at(3, 20), at(1, 1000)] == [0, 0, 50, 100, 110, 110]
    with pytest.raises(MatchError) as never:
        at(5, 10)
    assert never.value.errno is Errno.ENODEV
    with pytest.raises(MatchError) as busy:
        made.match(jobspec(nodes(2, slot(1, core=1))), RESERVE)
    assert busy.value.errno is Errno.EBUSY
    made.cancel(1)
    assert at(2, 10, ALLOCATE) == 0
    with pytest.raises(MatchError):
        at(2, 100, ALLOCATE)
    assert at(2, 10) == 10


def test_r_is_what_flux_sched_writes() -> None:
    made = loaded("lonode", 1, 1, memory=0)
    match = made.match(jobspec(nodes(1, slot(1, core=1))), ALLOCATE)
    assert match.allocation().endswith("}\n")
    vertices = json.loads(match.allocation())["graph"]["nodes"]
    assert vertices[0] == {
        "id": "2",
        "metadata": {
            "type": "core",
            "id": 0,
            "rank": -1,
            "exclusive": True,
            "paths": {"containment": "/cluster0/node0/core0"},
        },
    }
    assert [vertex["metadata"]["type"] for vertex in vertices] == ["core", "node", "cluster"]


def test_down_nodes_count_twice_against_those_that_are_up() -> None:
    down = json.loads(flat_jgf(3))
    down["graph"]["nodes"][1]["metadata"]["status"] = 1
    made = Engine()
    made.init("lonode", jgf=json.dumps(down))
    with pytest.raises(MatchError):
        made.match(jobspec(nodes(2, slot(1, core=1))), ALLOCATE)
    made.set_status("/cluster0/node0", True)
    assert made.match(jobspec(nodes(2, slot(1, core=1))), ALLOCATE).jobid == 2
    with pytest.raises(UnknownPath):
        made.set_status("/cluster0/node9", True)


def test_failed_matches_use_up_job_ids() -> None:
    made = loaded("lonode", 1, 1)
    request = jobspec(slot(1, core=1), duration=10)
    assert made.match(request, ALLOCATE).jobid == 1
    with pytest.raises(MatchError):
        made.match(request, ALLOCATE)
    with pytest.raises(MatchError) as unreadable:
        made.match("{}", ALLOCATE)
    assert unreadable.value.errno is Errno.EINVAL
    reserved = made.match(request, RESERVE)
    assert (reserved.jobid, reserved.reserved, reserved.at) == (3, True, 10)
    made.cancel(3)
    assert (made.info(1).mode, made.info(3).mode, made.info(3).at) == ("ALLOCATED", "CANCELED", 10)
    made.cancel(3)
    with pytest.raises(UnknownJob):
        made.cancel(3, noent_ok=False)
    with pytest.raises(UnknownJob):
        made.info(99)


@pytest.mark.parametrize(
    "policy",
    [
        "policy",
        "node_centric",
        "node_centric=true",
        "LONODE",
        "policy=first",
        "policy=low policy=high",
        "foo",
    ],
)
def test_what_is_no_policy_fails_init(policy: str) -> None:
    with pytest.raises(InitError, match="policy"):
        loaded(policy)


def test_an_empty_cluster_answers_every_call() -> None:
    made = Engine()
    made.init("lonode", nodes=(), call=CallContext())
    for request in MatchRequestKind:
        with pytest.raises(MatchError):
            made.match(jobspec(nodes(1, slot(1, core=1))), request)
