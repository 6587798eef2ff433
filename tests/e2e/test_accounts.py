"""FluxAccounts on a real control plane: whose work they limit, what they show, and what is refused with one sentence."""

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from support.builders import JobBuilder, make_account, make_job, make_pod
from support.end_to_end import Stage, wrong

from fluxqueue.api.fluxaccounts import FluxAccount
from fluxqueue.api.fluxjobs import FluxJob, State

RUN_SECONDS = "fluxqueue.local/run-seconds"


def job(name: str, seconds: str = "0.5") -> JobBuilder:
    return make_job(name).cpu("2").pod_annotation(RUN_SECONDS, seconds)


class Accounts:
    """FluxAccounts of one test."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._names: list[str] = []

    def name(self, name: str) -> str:
        return f"{name}-{self._stage.namespace}"

    def put(self, name: str, **spec: Any) -> None:
        if "parent" in spec:
            spec["parent"] = self.name(spec["parent"])
        self._names.append(self.name(name))
        self._stage.kubectl("apply", "-f", "-", stdin=json.dumps(make_account(self.name(name), **spec)))

    def change(self, name: str, **spec: Any) -> None:
        self._stage.kubectl("patch", "fluxaccount", self.name(name), "--type=merge", "-p", json.dumps({"spec": spec}))

    def status(self, name: str) -> Any:
        text = self._stage.kubectl("get", "fluxaccount", self.name(name), "-o", "json").stdout
        return msgspec.convert(json.loads(text), FluxAccount).status

    def delete(self, *names: str) -> None:
        if unwanted := [*map(self.name, names)] or self._names:
            self._stage.kubectl("delete", "fluxaccount", "--ignore-not-found", *unwanted)


@pytest.fixture
def accounts(stage: Stage) -> Iterator[Accounts]:
    made = Accounts(stage)
    yield made
    made.delete()


def fluxjob(stage: Stage, name: str) -> FluxJob:
    found = stage.row(name).fluxjob
    assert found is not None
    return found


def test_a_limit_above_an_account_holds_for_jobs_and_pods_of_its_namespaces_until_it_is_edited(stage: Stage, accounts: Accounts) -> None:
    accounts.put("site", limits={"resources": {"cpu": 4}})
    accounts.put("team", parent="site", namespaces=[stage.namespace])
    stage.apply(job("first", "forever").indexed(2).build())
    stage.until_state("first", State.RUNNING)
    stage.apply(make_pod("second").cpu("2").annotation(RUN_SECONDS, "0.5").build())
    why = stage.until_reason("second", "AccountLimit").status
    site = accounts.name("site")
    assert (why.message, why.account) == (
        f"the account '{site}' may use 4 cores at once: it uses 4, and this wants 2 more",
        accounts.name("team"),
    )
    explained = stage.plugin("explain", "pod/second").stdout
    assert re.search(rf"^ +Account +{accounts.name('team')}$", explained, re.MULTILINE)
    assert f"AccountLimit: {why.message}\n" in explained

    def counts() -> list[tuple[int, int]]:
        return [((status := accounts.status(name)).running, status.pending) for name in ("site", "team")]

    stage.until("both accounts show what runs and what waits", lambda: counts() == [(1, 1), (1, 1)])
    accounts.change("site", limits={"resources": {"cpu": "6"}})
    assert wrong([stage.until_state("second", State.COMPLETED)]) == []


def test_work_follows_its_namespace_while_it_waits_and_keeps_its_account_once_it_runs(stage: Stage, accounts: Accounts) -> None:
    accounts.put("poor", namespaces=[stage.namespace], limits={"running": 1})
    accounts.put("rich")
    stage.apply(job("runs", "forever").build())
    stage.until_state("runs", State.RUNNING)
    stage.apply(job("waits", "forever").build())
    stage.until_reason("waits", "AccountLimit")
    accounts.put("rich", namespaces=[stage.namespace])
    stage.until("the younger account says who has the namespace", lambda: ready(accounts, "rich") == "NamespaceTaken")
    accounts.change("poor", namespaces=[])
    stage.until_state("waits", State.RUNNING)
    stage.until("the younger account has it", lambda: ready(accounts, "rich") == "Ready")
    shown = {name: fluxjob(stage, name).status.account for name in ("runs", "waits")}
    assert shown == {"runs": accounts.name("poor"), "waits": accounts.name("rich")}
    stage.kill("queue")
    stage.until_ready("queue")
    stage.until("the counts are those of before", lambda: [accounts.status(name).running for name in ("poor", "rich")] == [1, 1])


def ready(accounts: Accounts, name: str) -> str:
    return next((each.reason for each in accounts.status(name).conditions or () if each.type == "Ready"), "")


def test_a_mistake_in_the_tree_is_shown_and_harms_no_other_account(stage: Stage, accounts: Accounts) -> None:
    accounts.put("a", parent="b", namespaces=[stage.namespace], limits={"running": 1})
    stage.until("its parent is missing", lambda: ready(accounts, "a") == "ParentMissing")
    accounts.put("b", parent="a")
    stage.until("both are in a circle", lambda: (ready(accounts, "a"), ready(accounts, "b")) == ("Circle", "Circle"))
    stage.apply(job("one", "forever").build(), job("two", "forever").build())
    stage.until_state("one", State.RUNNING)
    stage.until_reason("two", "AccountLimit")
    accounts.delete("b")
    stage.until("its parent is missing again", lambda: ready(accounts, "a") == "ParentMissing")
    accounts.delete("a")
    stage.until_state("two", State.RUNNING)


BAD_INPUT: list[tuple[dict[str, Any], str]] = [
    ({"parent": "SELF"}, "parent is the account itself: name the account above it, or leave it out"),
    ({"parent": "Not A Name"}, "spec.parent"),
    ({"namespaces": ["team", "team"]}, 'spec.namespaces[1]: Duplicate value: "team"'),
    ({"namespaces": ["No Namespace"]}, "spec.namespaces[0]"),
    ({"limits": {"running": -1}}, "spec.limits.running"),
    ({"limits": {"nodes": "many"}}, "spec.limits.nodes"),
    ({"limits": {"resources": {"cpu": -1}}}, "resources: a quantity is not negative; 0 allows none of it"),
    ({"limits": {"resources": {"cpu": "a few"}}}, "spec.limits.resources.cpu"),
    ({"limits": {"resources": {"memory": "-1Gi"}}}, "spec.limits.resources.memory"),
    ({"limits": {"resources": {"gpu": 1}}}, "a name is cpu, memory, ephemeral-storage, pods, hugepages-SIZE, or has a domain"),
    ({"limits": {"cores": 8}}, 'unknown field "spec.limits.cores"'),
]


def test_an_account_that_cannot_be_meant_is_refused_with_its_field(stage: Stage, accounts: Accounts) -> None:
    name, answers = accounts.name("odd"), []
    for spec, words in BAD_INPUT:
        document = make_account(name, **{key: name if value == "SELF" else value for key, value in spec.items()})
        done = stage.kubectl("create", "--validate=strict", "-f", "-", stdin=json.dumps(document), check=False)
        if done.returncode == 0 or words not in done.stderr:
            answers.append((spec, done.stdout + done.stderr))
    assert answers == []


def test_everybody_reads_accounts_and_only_operators_write_them(stage: Stage, accounts: Accounts) -> None:
    accounts.put("site")
    subject = f"system:serviceaccount:{stage.namespace}:somebody"

    def may(verb: str, *what: str) -> bool:
        done = stage.kubectl("auth", "can-i", verb, "fluxaccounts.jobs.converged-computing.org", *what, "--as", subject, check=False)
        return bool(done.stdout.strip() == "yes")

    verbs = ("get", "list", "watch", "create", "update", "patch", "delete")
    assert [verb for verb in verbs if may(verb)] == ["get", "list", "watch"]
    binding = f"operator-{stage.namespace}"
    who = f"--serviceaccount={stage.namespace}:somebody"
    stage.kubectl("create", "clusterrolebinding", binding, "--clusterrole=fluxqueue-operator", who)
    try:
        assert all(may(verb) for verb in verbs)
        assert not may("patch", "--subresource=status")
    finally:
        stage.kubectl("delete", "clusterrolebinding", binding)
