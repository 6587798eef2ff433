"""Properties of the engine for any graph and any sequence of requests."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.fluxion_builders import (
    NOW,
    ask,
    check_books,
    engine,
    flat_jgf,
    holdings,
    jobspec,
    node,
    nodes,
    slot,
    state_of,
)

from fluxqueue.fluxion.changes import CancelJobs, ExtendJob, RestoreJobs
from fluxqueue.fluxion.compat.requests import MatchRequestKind
from fluxqueue.fluxion.engine.engine import Engine
from fluxqueue.fluxion.errors import InitError, MatchError
from fluxqueue.fluxion.graph.jgf import InvalidGraph, read_jgf
from fluxqueue.fluxion.match import matcher as matching
from fluxqueue.fluxion.match.explain import explain
from fluxqueue.fluxion.match.introsort import introsort
from fluxqueue.fluxion.match.jobspec import InvalidJobspec, read_jobspec
from fluxqueue.fluxion.match.windows import Window
from fluxqueue.fluxion.messages import CallContext, GraphNodeSpec, JobMatchRequest, MatchVerdict, RestoredJob

RELAXED = settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
POLICIES = (
    "low",
    "high",
    "lonode",
    "hinode",
    "first",
    "lonodex",
    "firstnodex",
    "policy=low stop_on_1_matches=true",
)

counts = st.one_of(
    st.integers(1, 3),
    st.builds(
        lambda low, more, step: {"min": low, "max": low + more, "operator": "+", "operand": step},
        st.integers(1, 2),
        st.integers(0, 3),
        st.integers(1, 2),
    ),
    st.just({"min": 1}),
)
leaf_needs = st.dictionaries(
    st.sampled_from(["core", "memory"]), st.one_of(st.integers(1, 3), counts), min_size=1
)
requests = st.one_of(
    st.builds(lambda n, s, needs: nodes(n, slot(s, **needs)), counts, counts, leaf_needs),
    st.builds(lambda n, needs: nodes(n, slot(1, **needs), exclusive=True), counts, leaf_needs),
    st.builds(lambda n: nodes(n, exclusive=True), counts),
    st.builds(lambda s, needs: slot(s, **needs), counts, leaf_needs),
    st.builds(
        lambda n, kind: {"type": kind, "count": n, "exclusive": True},
        counts,
        st.sampled_from(["core", "memory"]),
    ),
)
steps = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(["allocate", "allocate_orelse_reserve", "satisfiability"]),
            requests,
            st.sampled_from([10, 60, 0]),
        ),
        st.tuples(st.just("cancel"), st.integers(1, 12), st.none()),
        st.tuples(st.just("down"), st.integers(0, 5), st.booleans()),
    ),
    max_size=14,
)


def run(made: Engine, sequence: Any) -> list[Any]:
    answers: list[Any] = []
    for kind, what, more in sequence:
        if kind == "cancel":
            made.cancel(what)
        elif kind == "down":
            paths = [vertex.path for vertex in state_of(made).graph.nodes]
            made.set_status(paths[what % len(paths)], more)
        else:
            try:
                match = made.match(jobspec(what, duration=more), MatchRequestKind(kind))
                answers.append((match.jobid, match.at, match.vertices))
            except MatchError as error:
                answers.append(error.errno)
    return answers


@RELAXED
# more equals than sort stably
@example("high", 6, 0, [("allocate", {"type": "core", "count": 1, "exclusive": True}, 10)])
@given(st.sampled_from(POLICIES), st.integers(1, 9), st.integers(0, 3), steps)
def test_shortcuts_and_the_traverser_give_the_same_answers(
    policy: str, count: int, per_rack: int, sequence: Any
) -> None:
    graph = flat_jgf(count, per_rack=per_rack)
    quick, slow = Engine(), Engine()
    quick.init(policy, jgf=graph)
    slow.init(policy, jgf=graph)
    with pytest.MonkeyPatch.context() as patched:
        answers = run(quick, sequence)
        patched.setattr(matching, "plan_for", lambda *_: None)
        assert run(slow, sequence) == answers
    check_books(quick)


pools: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"cpu": st.integers(1, 9).map(lambda n: n * 90), "pods": st.integers(1, 4)},
    optional={"memory": st.integers(1, 1_200)},
)
specs = st.lists(pools, min_size=1, max_size=5).map(
    lambda made: [
        node(f"n{i}", zone=f"z{i % 2}", labels=("odd",) if i % 2 else (), **each)
        for i, each in enumerate(made)
    ]
)
asks = st.lists(
    st.tuples(
        st.builds(
            lambda n, cpu, pods, memory: slot(
                n, **{k: v for k, v in (("cpu", cpu), ("pods", pods), ("memory", memory)) if v}
            ),
            counts,
            st.integers(1, 500),
            st.integers(0, 2),
            st.sampled_from([0, 0, 100, 400]),
        ),
        st.booleans(),
        st.booleans(),
    ),
    max_size=10,
)


@RELAXED
@given(st.sampled_from(["lonode", "hinode"]), specs, asks)
def test_slots_on_any_nodes_are_those_of_the_traverser(
    policy: str, made_of: list[GraphNodeSpec], wanted: Any
) -> None:
    quick, slow = engine(*made_of, policy=policy), engine(*made_of, policy=policy)
    for number, (level, reserve, odd) in enumerate(wanted, 1):
        text = jobspec(level, constraints={"properties": ["odd"]} if odd else None)
        answer = ask(quick, text, number, reserve=reserve)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(matching, "plan_for", lambda *_: None)
            assert ask(slow, text, number, reserve=reserve) == answer
    check_books(quick)
    assert holdings(quick) == holdings(slow)


plans = st.lists(
    st.one_of(
        st.builds(
            lambda n, cpu, pods, duration, later: (
                "slots",
                slot(n, cpu=cpu, **({"pods": pods} if pods else {})),
                duration,
                later,
            ),
            st.integers(1, 4),
            st.integers(1, 500),
            st.integers(0, 2),
            st.sampled_from([10, 25, 60, 0]),
            st.integers(0, 15),
        ),
        st.builds(
            lambda n, cpu, exclusive, duration: (
                "nodes",
                nodes(n, slot(1, cpu=cpu), exclusive=exclusive),
                duration,
                0,
            ),
            st.integers(1, 3),
            st.integers(1, 500),
            st.booleans(),
            st.sampled_from([10, 25, 60, 0]),
        ),
        st.tuples(st.just("cancel"), st.integers(1, 20), st.none(), st.integers(0, 15)),
        st.tuples(st.just("extend"), st.integers(1, 20), st.sampled_from([5, 40]), st.just(0)),
        st.tuples(st.just("improve"), st.integers(1, 20), st.none(), st.integers(0, 15)),
    ),
    max_size=16,
)


ONE_NODE = nodes(1, slot(1, cpu=1))
HELD_BEYOND_ITS_END = [
    ("nodes", ONE_NODE, 10, 0),
    ("nodes", ONE_NODE, 10, 1),
    ("nodes", ONE_NODE, 10, 0),
    ("improve", 3, None, 9),
]


@RELAXED
@example("lonode", [node("n0", cpu=90, pods=1), node("n1", cpu=90, pods=1)], HELD_BEYOND_ITS_END)
@given(st.sampled_from(["lonode", "hinode", "lonodex", "first"]), specs, plans)
def test_a_reservation_has_the_start_that_trying_every_time_finds(
    policy: str, made_of: list[GraphNodeSpec], wanted: Any
) -> None:
    quick, slow = engine(*made_of, policy=policy), engine(*made_of, policy=policy)
    clock = 1_000
    asked: dict[int, str] = {}
    for number, (kind, what, more, later) in enumerate(wanted, 1):
        clock += later
        now = CallContext(now=clock)
        if kind == "cancel":
            for each in (quick, slow):
                each.apply([CancelJobs([what])], now)
        elif kind == "extend":
            assert (
                quick.apply([ExtendJob(what, clock + more)], now).displaced
                == slow.apply([ExtendJob(what, clock + more)], now).displaced
            )
        else:
            jobid = what if kind == "improve" else number
            text = (
                asked.get(jobid)
                if kind == "improve"
                else asked.setdefault(number, jobspec(what, duration=more))
            )
            if text is None:
                continue
            before = (
                quick.job_info(jobid, now).at if kind == "improve" and jobid in state_of(quick).jobs else None
            )
            overdue = any(not job.reserved and job.end <= clock for job in state_of(quick).jobs.values())
            answer = ask(quick, text, jobid, now, reserve=True, improve=kind == "improve")
            # A reservation that is due moves while a job on its nodes is held beyond its planned end; nothing
            # else delays one.
            assert before is None or answer.at <= max(before, clock) or (before <= clock and overdue)
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(matching, "plan_for", lambda *_: None)
                assert ask(slow, text, jobid, now, reserve=True, improve=kind == "improve") == answer
    check_books(quick)


@RELAXED
@given(st.sampled_from(["lonode", "hinode", "lonodex"]), specs, plans)
def test_the_choice_of_nodes_changes_no_start_of_a_reservation(
    policy: str, made_of: list[GraphNodeSpec], wanted: Any
) -> None:
    made, clock = engine(*made_of, policy=policy), 1_000
    for number, (kind, what, more, later) in enumerate(wanted, 1):
        clock += later
        now = CallContext(now=clock)
        if kind == "cancel":
            made.apply([CancelJobs([what])], now)
        elif kind not in ("extend", "improve"):
            text = jobspec(what, duration=more)
            (usual,) = made.match_batch([JobMatchRequest(text, number, reserve=True)], now).results
            made.apply([CancelJobs([number])], now)
            (latest,) = made.match_batch(
                [JobMatchRequest(text, number, reserve=True, latest_nodes=True)], now
            ).results
            assert (latest.verdict, latest.at, latest.end) == (usual.verdict, usual.at, usual.end)
    check_books(made)


def check_refusals(made: Engine, clock: int, count: int, cpu: int) -> None:
    """Compare the explanations by column with those node by node, for windows of several lengths."""
    state = state_of(made)
    table, graph = state.table, state.graph
    for level in (
        slot(count, cpu=cpu),
        slot(count, cpu=cpu, pods=1),
        nodes(count, slot(2, cpu=cpu)),
        slot(count, memory=cpu),
    ):
        spec = read_jobspec(jobspec(level))
        windows = [Window(clock, clock + length, clock) for length in (1, 15, 60, 1_000)]
        for window in (*windows, Window(clock + 5, clock + 30, clock), Window(0, 1, empty=True)):
            with pytest.MonkeyPatch.context() as patched:
                said = explain(graph, table, spec, window)
                patched.setattr(table, "plain", False)
                assert explain(graph, table, spec, window) == said


@RELAXED
@given(specs, asks, st.integers(1, 4), st.integers(1, 2_000))
def test_a_refusal_by_column_equals_the_refusal_node_by_node(
    made_of: list[GraphNodeSpec], wanted: Any, count: int, cpu: int
) -> None:
    made = engine(*made_of)
    for number, (level, reserve, _) in enumerate(wanted, 1):
        ask(made, jobspec(level), number, reserve=reserve)
    check_refusals(made, 1_000, count, cpu)


@RELAXED
@given(specs, plans, st.integers(1, 4), st.integers(1, 2_000))
def test_refusals_by_column_stay_right_while_work_and_time_go_on(
    made_of: list[GraphNodeSpec], wanted: Any, count: int, cpu: int
) -> None:
    made, clock = engine(*made_of), 1_000
    asked: dict[int, str] = {}
    for number, (kind, what, more, later) in enumerate(wanted, 1):
        clock += later
        now = CallContext(now=clock)
        if kind == "cancel":
            made.apply([CancelJobs([what])], now)
        elif kind == "extend":
            made.apply([ExtendJob(what, clock + more)], now)
        elif kind == "improve":
            if what in asked:
                ask(made, asked[what], what, now, reserve=True, improve=True)
        else:
            asked[number] = jobspec(what, duration=more)
            ask(made, asked[number], number, now, reserve=True)
        check_refusals(made, clock, count, cpu)


@RELAXED
@given(specs, asks, st.data())
def test_cancelling_restores_the_exact_earlier_state(
    made_of: list[GraphNodeSpec], wanted: Any, data: st.DataObject
) -> None:
    made = engine(*made_of)
    for number, (level, reserve, _) in enumerate(wanted, 1):
        before = holdings(made)
        result = ask(made, jobspec(level), number, reserve=reserve)
        if result.verdict in (MatchVerdict.GRANTED, MatchVerdict.RESERVED):
            check_books(made)
            made.apply([CancelJobs([number])], NOW)
            assert holdings(made) == before
            again = ask(made, jobspec(level), number, reserve=reserve)
            assert again == result
            if data.draw(st.booleans()):
                made.apply([CancelJobs([number])], NOW)
        else:
            assert holdings(made) == before
        total = made.stat(NOW, per_node=True)
        for kind, amount in total.total.items():
            used = sum(use.used.get(kind, 0) for use in total.node_use)
            assert total.free[kind] == amount - used


@RELAXED
@given(specs, asks)
def test_what_was_granted_can_be_restored_into_an_empty_graph(
    made_of: list[GraphNodeSpec], wanted: Any
) -> None:
    made, fresh = engine(*made_of), engine(*made_of)
    for number, (level, _, _) in enumerate(wanted, 1):
        ask(made, jobspec(level), number)
    live = made.list_jobs(NOW, with_shares=True)
    applied = fresh.apply(
        [RestoreJobs([RestoredJob(job.jobid, job.shares, job.at, job.end) for job in live])], NOW
    )
    assert applied.done
    assert fresh.list_jobs(NOW, with_shares=True) == live
    if not applied.excess:
        assert fresh.stat(NOW).free == made.stat(NOW).free


@RELAXED
@given(specs, asks, st.integers(1_001, 1_200))
def test_time_passing_frees_nothing_that_is_held(
    made_of: list[GraphNodeSpec], wanted: Any, later: int
) -> None:
    made = engine(*made_of)
    for number, (level, reserve, _) in enumerate(wanted, 1):
        ask(made, jobspec(level), number, reserve=reserve)
    free = made.stat(NOW).free
    assert made.stat(CallContext(now=later)).free == free or any(
        job.at <= later for job in made.list_jobs(CallContext(now=later))
    )
    for number, (level, reserve, _) in enumerate(wanted, 1):
        ask(made, jobspec(level), number, call=CallContext(now=later), reserve=reserve)
    check_books(made)


words = st.sampled_from(["node", "slot", "core", "-1", "1e9"])
KEYS = (
    (
        "version resources tasks attributes type count with label min max operator operand system duration "
        "constraints and or not properties"
    ),
    "hostlist ranks graph nodes edges id metadata paths containment source target exclusive slot command",
)
keys = st.sampled_from([key for line in KEYS for key in line.split()])
plain = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), words)
documents = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=6), max_leaves=30
)


def outcome(read: Callable[[], object], refusal: type[Exception]) -> str:
    """Return the refusal of a reader, or ``read``. Any other exception is a failure."""
    try:
        read()
    except refusal as error:
        return str(error)
    return "read"


@RELAXED
@given(st.one_of(st.text(), documents.map(json.dumps), st.binary().map(lambda raw: raw.decode("latin-1"))))
def test_readers_raise_nothing_but_their_own_errors(text: str) -> None:
    assert outcome(lambda: read_jobspec(text), InvalidJobspec)
    assert outcome(lambda: read_jgf(text), InvalidGraph)


@RELAXED
@given(documents, st.sampled_from(["version", "resources", "tasks", "attributes"]))
def test_a_jobspec_with_any_part_replaced_is_read_or_refused(part: Any, key: str) -> None:
    whole = json.loads(jobspec(nodes(1, slot(1, core=1))))
    whole[key] = part
    said = outcome(lambda: read_jobspec(json.dumps(whole)), InvalidJobspec)
    assert said == "read" or key in said or "jobspec" in said


@RELAXED
@given(
    documents,
    st.integers(0, 5),
    st.sampled_from(["id", "metadata", "type", "paths", "rank", "size", "status", "properties", "name"]),
)
def test_a_graph_with_any_part_replaced_is_loaded_or_refused(part: Any, which: int, key: str) -> None:
    whole = json.loads(flat_jgf(2, cores=1, memory=0))
    vertex = whole["graph"]["nodes"][which % len(whole["graph"]["nodes"])]
    (vertex if key in ("id", "metadata") else vertex["metadata"])[key] = part
    said = outcome(lambda: Engine().init("first", jgf=json.dumps(whole)), InitError)
    assert said == "read" or said.startswith("JGF")


@RELAXED
@given(st.lists(st.integers(0, 5), max_size=200))
def test_introsort_sorts_and_is_stable_up_to_sixteen(keys: list[int]) -> None:
    items = list(enumerate(keys))
    done = introsort(items, key=lambda item: item[1])
    assert [key for _, key in done] == sorted(keys)
    assert sorted(done) == items
    if len(items) <= 16:
        assert done == sorted(items, key=lambda item: item[1])


def test_introsort_orders_ties_as_flux_sched_does() -> None:
    done = introsort(list(range(20)), key=lambda item: 1)
    assert set(done[:3]) == {10, 18, 19}
