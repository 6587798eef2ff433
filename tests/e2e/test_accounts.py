"""FluxAccounts on a real control plane: whose work they limit, what they show,
and what is refused with one sentence.
"""

import json
import re
from typing import Any

import msgspec
from support.builders import JobBuilder, make_account, make_job, make_pod
from support.end_to_end import Stage, wrong
from support.stage_accounts import Accounts

from fluxqueue.api.fluxjobs import FluxJob, State

RUN_SECONDS = "fluxqueue.local/run-seconds"


def job(name: str, seconds: str = "0.5") -> JobBuilder:
    return make_job(name).cpu("2").pod_annotation(RUN_SECONDS, seconds)


def fluxjob(stage: Stage, name: str) -> FluxJob:
    found = stage.row(name).fluxjob
    assert found is not None
    return found


def test_a_limit_above_an_account_holds_for_jobs_and_pods_of_its_namespaces_until_it_is_edited(
    stage: Stage, accounts: Accounts
) -> None:
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


def test_work_follows_its_namespace_while_it_waits_and_keeps_its_account_once_it_runs(
    stage: Stage, accounts: Accounts
) -> None:
    accounts.put("poor", namespaces=[stage.namespace], limits={"running": 1})
    accounts.put("rich")
    stage.apply(job("runs", "forever").build())
    stage.until_state("runs", State.RUNNING)
    stage.apply(job("waits", "forever").build())
    stage.until_reason("waits", "AccountLimit")
    accounts.put("rich", namespaces=[stage.namespace])
    stage.until(
        "the younger account says who has the namespace", lambda: ready(accounts, "rich") == "NamespaceTaken"
    )
    accounts.change("poor", namespaces=[])
    stage.until_state("waits", State.RUNNING)
    stage.until("the younger account has it", lambda: ready(accounts, "rich") == "Ready")
    shown = {name: fluxjob(stage, name).status.account for name in ("runs", "waits")}
    assert shown == {"runs": accounts.name("poor"), "waits": accounts.name("rich")}
    stage.kill("queue")
    stage.until_ready("queue")
    stage.until(
        "the counts are those of before",
        lambda: [accounts.status(name).running for name in ("poor", "rich")] == [1, 1],
    )


def test_work_beyond_what_an_account_may_submit_waits_until_earlier_work_has_ended(
    stage: Stage, accounts: Accounts
) -> None:
    accounts.put("team", namespaces=[stage.namespace], limits={"submitted": 1})
    stage.apply(job("first", "forever").build())
    stage.until_state("first", State.RUNNING)
    stage.apply(job("second").build())
    team = accounts.name("team")
    words = f"the account '{team}' may have 1 workloads submitted at once, and 1 were submitted before this"
    assert stage.until_reason("second", "AccountLimit").status.message == words
    stage.kubectl("delete", "job", "first", "-n", stage.namespace)
    assert wrong([stage.until_state("second", State.COMPLETED)]) == []


def test_what_is_guaranteed_is_borrowed_and_taken_back(stage: Stage, accounts: Accounts) -> None:
    queue, second = f"lend-{stage.namespace}", f"{stage.namespace}-second"
    document = {
        "apiVersion": "jobs.converged-computing.org/v1alpha1",
        "kind": "FluxQueue",
        "metadata": {"name": queue},
    }
    stage.kubectl("apply", "-f", "-", stdin=json.dumps({**document, "spec": {"preemption": "lowerPriority"}}))
    stage.kubectl("create", "namespace", second)
    stage.kubectl("label", "namespace", second, "fluxqueue/managed=true")
    try:
        accounts.put("owner", namespaces=[stage.namespace], guaranteed={"nodes": 2})
        accounts.put("guest", namespaces=[second])
        borrower = (
            job("borrower", "forever")
            .indexed(8)
            .cpu("8")
            .label("fluxqueue/queue", queue)
            .namespace(second)
            .build()
        )
        stage.kubectl("apply", "-n", second, "-f", "-", stdin=json.dumps(borrower))

        def seen() -> FluxJob | None:
            text = stage.kubectl("get", "fluxjobs", "-n", second, "-o", "json").stdout
            return next((msgspec.convert(item, FluxJob) for item in json.loads(text)["items"]), None)

        stage.until(
            "the guest has all nodes",
            lambda: (found := seen()) is not None and found.status.state == State.RUNNING,
        )
        stage.apply(job("mine", "forever").cpu("8").label("fluxqueue/queue", queue).build())
        stage.until_state("mine", State.RUNNING)
        stage.until(
            "the guest waits again",
            lambda: (found := seen()) is not None and found.status.state == State.PENDING,
        )
        lost = seen()
        assert lost is not None
        owner = accounts.name("owner")
        assert lost.status.reason == "Preempted"
        assert (
            f"by work of another namespace, to whose account '{owner}' the resources are guaranteed"
            in lost.status.message
        )

        def shown() -> tuple[str, str, str] | None:
            found = accounts.status("owner").guaranteed
            return (found[0].guaranteed, found[0].used, found[0].borrowed) if found else None

        stage.until("the owner shows what it uses of its guarantee", lambda: shown() == ("2", "1", "0"))
        explained = stage.plugin("explain", "job/mine").stdout
        assert re.search(
            rf"^ +Guaranteed +to '{owner}': 2 nodes \(used 1, borrowed 0\)$", explained, re.MULTILINE
        )
    finally:
        stage.kubectl("delete", "job", "--all", "-n", stage.namespace, "--wait=false")
        stage.kubectl("delete", "namespace", second, "--wait=false")
        stage.kubectl("delete", "fluxqueue", queue)


def ready(accounts: Accounts, name: str) -> str:
    return next((each.reason for each in accounts.status(name).conditions or () if each.type == "Ready"), "")


def test_a_mistake_in_the_tree_is_shown_and_harms_no_other_account(stage: Stage, accounts: Accounts) -> None:
    accounts.put("a", parent="b", namespaces=[stage.namespace], limits={"running": 1})
    stage.until("its parent is missing", lambda: ready(accounts, "a") == "ParentMissing")
    accounts.put("b", parent="a")
    stage.until(
        "both are in a circle", lambda: (ready(accounts, "a"), ready(accounts, "b")) == ("Circle", "Circle")
    )
    stage.apply(job("one", "forever").build(), job("two", "forever").build())
    stage.until_state("one", State.RUNNING)
    stage.until_reason("two", "AccountLimit")
    accounts.delete("b")
    stage.until("its parent is missing again", lambda: ready(accounts, "a") == "ParentMissing")
    accounts.delete("a")
    stage.until_state("two", State.RUNNING)


def test_a_charged_account_waits_behind_its_sibling_and_the_numbers_say_why(
    stage: Stage, accounts: Accounts
) -> None:
    queue, other = f"fair-{stage.namespace}", accounts.name("other")
    weights = {"fairShare": 1000, "age": 10}
    spec = {"priority": 5, "priorityWeights": weights}
    document = {
        "apiVersion": "jobs.converged-computing.org/v1alpha1",
        "kind": "FluxQueue",
        "metadata": {"name": queue},
        "spec": spec,
    }
    stage.kubectl("apply", "-f", "-", stdin=json.dumps(document))
    try:
        accounts.put("busy", namespaces=[stage.namespace], shares=1, shareAmongUsers=True)
        accounts.put("other", shares=3)
        stage.apply(job("runs", "forever").indexed(8).cpu("8").label("fluxqueue/queue", queue).build())
        stage.until_state("runs", State.RUNNING)
        stage.apply(job("waits", "forever").label("fluxqueue/queue", queue).build())
        stage.until_reason("waits", "WaitingForNodes")

        def charged() -> bool:
            shown, idle = accounts.status("busy").fair_share, accounts.status("other").fair_share
            return bool(shown and idle and shown.use > 0 and shown.factor < idle.factor)

        stage.until("the account that runs work is behind", charged, 150)
        lines = {line.split()[0]: line.split() for line in stage.plugin("shares").stdout.splitlines()}
        assert lines[other][1:4] == ["3", lines[other][2], "0"]
        assert (lines[other][5], lines[accounts.name("busy")][1]) == ("inf", "1")
        (cells,) = (
            line.split()
            for line in stage.plugin(
                "priority", "job/waits", "-o", "wide", "--no-headers"
            ).stdout.splitlines()
        )
        _, what, where, total, age, fair, size, of_queue, own, _, account, factor, pods = cells
        assert (what, where, account, pods) == ("job/waits", queue, accounts.name("busy"), "1")
        assert int(total) == int(age) + int(fair) + int(size) + int(of_queue) + int(own)
        assert (int(fair), of_queue, own, size) == (round(1000 * float(factor)), "5", "0", "0")
        shown = accounts.status("busy").fair_share
        (user,) = shown.users
        assert user.use > 0
        assert float(factor) == user.factor < shown.factor, (
            "who used something comes after those who used nothing"
        )
        assert lines[user.user][6] == f"{user.factor:.6g}"
        (line,) = stage.plugin("priority", "--weights", "-q", queue, "--no-headers").stdout.splitlines()
        assert line.split() == [queue, "10", "1000", "0", "1", "1", "7d", "100", "pods", "5"]
    finally:
        stage.kubectl("delete", "job", "--all", "--wait=false")
        stage.kubectl("delete", "fluxqueue", queue)


def test_the_account_with_more_shares_goes_first(stage: Stage, accounts: Accounts) -> None:
    """Both have used nothing, so the factor of the one without shares is the lower;
    its older Job starts last.
    """
    queue, second = f"fair-{stage.namespace}", f"{stage.namespace}-second"
    spec = {"policy": "fcfs", "priorityWeights": {"fairShare": 1000}}
    document = {
        "apiVersion": "jobs.converged-computing.org/v1alpha1",
        "kind": "FluxQueue",
        "metadata": {"name": queue},
        "spec": spec,
    }
    stage.kubectl("apply", "-f", "-", stdin=json.dumps(document))
    stage.kubectl("create", "namespace", second)
    stage.kubectl("label", "namespace", second, "fluxqueue/managed=true")
    try:
        accounts.put("last", namespaces=[stage.namespace], shares=0)
        accounts.put("first", namespaces=[second], shares=1)

        def factor(name: str) -> float:
            shown = accounts.status(name).fair_share
            return (shown.factor if shown else None) or 0.0

        stage.until("both have a factor", lambda: 0 < factor("last") < factor("first"))
        blocker = job("blocker", "forever").indexed(8).cpu("8").build()
        stage.apply(blocker)
        stage.until_state("blocker", State.RUNNING)
        older = job("older", "forever").indexed(8).cpu("8").label("fluxqueue/queue", queue).build()
        stage.apply(older)
        stage.until_reason("older", "WaitingForNodes")
        younger = (
            job("younger", "forever")
            .indexed(8)
            .cpu("8")
            .label("fluxqueue/queue", queue)
            .namespace(second)
            .build()
        )
        stage.kubectl("apply", "-n", second, "-f", "-", stdin=json.dumps(younger))

        def state(name: str, namespace: str) -> str:
            text = stage.kubectl("get", "fluxjobs", "-n", namespace, "-o", "json").stdout
            found = (msgspec.convert(item, FluxJob) for item in json.loads(text)["items"])
            return next((each.status.state for each in found if each.spec.object_ref.name == name), "")

        stage.until("the younger waits too", lambda: state("younger", second) == State.PENDING)
        stage.kubectl("delete", "job", "blocker")
        stage.until("the younger runs", lambda: state("younger", second) == State.RUNNING)
        assert state("older", stage.namespace) == State.PENDING
    finally:
        stage.kubectl("delete", "job", "--all", "--wait=false")
        stage.kubectl("delete", "job", "--all", "-n", second, "--wait=false")
        stage.kubectl("delete", "namespace", second, "--wait=false")
        stage.kubectl("delete", "fluxqueue", queue)


BAD_WEIGHTS: list[tuple[dict[str, Any], str]] = [
    ({"age": -1}, "spec.priorityWeights.age"),
    ({"fairShare": 1.5}, "spec.priorityWeights.fairShare"),
    ({"size": "large"}, "spec.priorityWeights.size"),
    ({"queue": 1_000_001}, "spec.priorityWeights.queue"),
    ({"priorityClass": -1}, "spec.priorityWeights.priorityClass"),
    ({"maxAgeSeconds": 0}, "spec.priorityWeights.maxAgeSeconds"),
    ({"fullSizePods": 0}, "spec.priorityWeights.fullSizePods"),
    ({"fairshare": 5}, 'unknown field "spec.priorityWeights.fairshare"'),
]


def test_a_weight_that_cannot_be_meant_is_refused_with_its_field(stage: Stage) -> None:
    answers = []
    for weights, words in BAD_WEIGHTS:
        document = {
            "apiVersion": "jobs.converged-computing.org/v1alpha1",
            "kind": "FluxQueue",
            "metadata": {"name": f"odd-{stage.namespace}"},
            "spec": {"priorityWeights": weights},
        }
        done = stage.kubectl(
            "create", "--validate=strict", "-f", "-", stdin=json.dumps(document), check=False
        )
        if done.returncode == 0 or words not in done.stderr:
            answers.append((weights, done.stdout + done.stderr))
    assert answers == []


BAD_INPUT: list[tuple[dict[str, Any], str]] = [
    ({"parent": "SELF"}, "parent is the account itself: name the account above it, or leave it out"),
    ({"parent": "Not A Name"}, "spec.parent"),
    ({"namespaces": ["team", "team"]}, 'spec.namespaces[1]: Duplicate value: "team"'),
    ({"namespaces": ["No Namespace"]}, "spec.namespaces[0]"),
    ({"shares": -1}, "spec.shares"),
    ({"shares": 1_000_001}, "spec.shares"),
    ({"shares": "half"}, "spec.shares"),
    ({"shareAmongUsers": "always"}, "spec.shareAmongUsers"),
    ({"limits": {"running": -1}}, "spec.limits.running"),
    ({"limits": {"submitted": -1}}, "spec.limits.submitted"),
    ({"limits": {"submitted": "all"}}, "spec.limits.submitted"),
    ({"limits": {"nodes": "many"}}, "spec.limits.nodes"),
    ({"limits": {"resources": {"cpu": -1}}}, "resources: a quantity is not negative; 0 allows none of it"),
    ({"limits": {"resources": {"cpu": "a few"}}}, "spec.limits.resources.cpu"),
    ({"limits": {"resources": {"memory": "-1Gi"}}}, "spec.limits.resources.memory"),
    (
        {"limits": {"resources": {"gpu": 1}}},
        "a name is cpu, memory, ephemeral-storage, pods, hugepages-SIZE, or has a domain",
    ),
    ({"guaranteed": {"nodes": -1}}, "spec.guaranteed.nodes"),
    ({"guaranteed": {"nodes": "some"}}, "spec.guaranteed.nodes"),
    (
        {"guaranteed": {"resources": {"cpu": -1}}},
        "resources: a quantity is not negative; 0 guarantees none of it",
    ),
    ({"guaranteed": {"resources": {"memory": "lots"}}}, "spec.guaranteed.resources.memory"),
    (
        {"guaranteed": {"resources": {"gpu": 1}}},
        "a name is cpu, memory, ephemeral-storage, pods, hugepages-SIZE, or has a domain",
    ),
    ({"guaranteed": {"running": 1}}, 'unknown field "spec.guaranteed.running"'),
    ({"limits": {"cores": 8}}, 'unknown field "spec.limits.cores"'),
    (
        {"budget": {"period": "week", "nodeHours": 1}},
        "period: write month, quarter, year, or a number of days up to 366d",
    ),
    (
        {"budget": {"period": "367d", "start": "2026-10-01", "nodeHours": 1}},
        "period: write month, quarter, year, or a number of days up to 366d",
    ),
    (
        {"budget": {"period": "30d", "nodeHours": 1}},
        "start: periods of days need the day on which the first one begins, such as 2026-10-01",
    ),
    ({"budget": {"start": "1 October", "nodeHours": 1}}, "spec.budget.start"),
    (
        {"budget": {"period": "month"}},
        "budget: name nodeHours or at least one of resourceHours, or leave the budget out",
    ),
    ({"budget": {"nodeHours": -1}}, "spec.budget.nodeHours"),
    (
        {"budget": {"resourceHours": {"cpu": -1}}},
        "resourceHours: a quantity is not negative; 0 allows none of it",
    ),
    (
        {"budget": {"resourceHours": {"gpu": 1}}},
        "resourceHours: a name is cpu, memory, ephemeral-storage, pods, hugepages-SIZE, or has a domain",
    ),
    ({"budget": {"coreHours": 1}}, 'unknown field "spec.budget.coreHours"'),
]


def test_an_account_that_cannot_be_meant_is_refused_with_its_field(stage: Stage, accounts: Accounts) -> None:
    name, answers = accounts.name("odd"), []
    for spec, words in BAD_INPUT:
        document = make_account(
            name, **{key: name if value == "SELF" else value for key, value in spec.items()}
        )
        done = stage.kubectl(
            "create", "--validate=strict", "-f", "-", stdin=json.dumps(document), check=False
        )
        if done.returncode == 0 or words not in done.stderr:
            answers.append((spec, done.stdout + done.stderr))
    assert answers == []


def test_a_budget_that_is_used_up_holds_until_it_is_raised_also_after_a_crash(
    stage: Stage, accounts: Accounts
) -> None:
    budget = {"period": "year", "resourceHours": {"cpu": 3, "memory": "1Ti"}, "nodeHours": 100}
    accounts.put("site", budget=budget)
    accounts.put("team", parent="site", namespaces=[stage.namespace])
    site = accounts.name("site")
    stage.apply(job("first", "forever").annotation("fluxqueue/duration", "1h").build())
    stage.until_state("first", State.RUNNING)
    stage.apply(job("second").annotation("fluxqueue/duration", "1h").build())
    words = (
        rf"the budget of the account '{site}' is used up until \d{{4}}-01-01: "
        r"0\S* of 3 core-hours are used, (2|1.9\S*) may still be"
    )
    assert re.match(words, stage.until_reason("second", "AccountLimit").status.message)
    stage.apply(job("huge").annotation("fluxqueue/duration", "2h").build())
    words = (
        f"the budget of the account '{site}' is 3 core-hours for a period, and this may use 4: "
        "ask for less, or less time, or"
    )
    assert stage.until_reason("huge", "AccountLimit").status.message.startswith(words)
    stage.apply(job("short").annotation("fluxqueue/duration", "20m").build())
    assert wrong([stage.until_state("short", State.COMPLETED)]) == []

    def shown() -> dict[str, Any]:
        budget = accounts.status("site").budget
        return {each.name: each for each in budget.amounts or ()} if budget is not None else {}

    stage.until(
        "the status shows that little is left",
        lambda: set(found := shown()) == {"cpu", "memory", "nodes"} and found["cpu"].left < 1.1,
    )
    assert re.search(
        rf"^{site} +cpu +\d{{4}}-01-01 +3 +\S+ +\S+ +\S+$", stage.plugin("shares").stdout, re.MULTILINE
    )
    used = shown()["cpu"].used
    stage.kill("queue")
    stage.until_ready("queue")
    stage.apply(job("third").annotation("fluxqueue/duration", "1h").build())
    stage.until_reason("third", "AccountLimit")
    stage.until("what was used is still used", lambda: shown()["cpu"].used >= used)
    accounts.change("site", budget={"resourceHours": {"cpu": 100}})
    assert wrong([stage.until_state(name, State.COMPLETED) for name in ("second", "third")]) == []


def test_everybody_reads_accounts_and_only_operators_write_them(stage: Stage, accounts: Accounts) -> None:
    accounts.put("site")
    subject = f"system:serviceaccount:{stage.namespace}:somebody"

    def may(verb: str, *what: str) -> bool:
        done = stage.kubectl(
            "auth",
            "can-i",
            verb,
            "fluxaccounts.jobs.converged-computing.org",
            *what,
            "--as",
            subject,
            check=False,
        )
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
