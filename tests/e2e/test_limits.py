"""Limits of FluxQueues, and of each workload, on the whole control plane."""

import json

from support.builders import JobBuilder, make_job
from support.end_to_end import Stage, wrong
from support.stage_accounts import Accounts

from fluxqueue.api.fluxjobs import State

RUN_SECONDS = "fluxqueue.local/run-seconds"


def job(name: str, seconds: str = "0.5") -> JobBuilder:
    return make_job(name).cpu("2").pod_annotation(RUN_SECONDS, seconds)


def test_wide_work_keeps_its_place_under_a_limit_in_a_queue_that_says_so(
    stage: Stage, accounts: Accounts
) -> None:
    queue = f"stop-{stage.namespace}"
    document = {
        "apiVersion": "jobs.converged-computing.org/v1alpha1",
        "kind": "FluxQueue",
        "metadata": {"name": queue},
    }
    stage.kubectl("apply", "-f", "-", stdin=json.dumps({**document, "spec": {"atLimit": "stop"}}))
    try:
        accounts.put("team", namespaces=[stage.namespace], limits={"resources": {"cpu": 4}})
        stage.apply(job("runs", "forever").label("fluxqueue/queue", queue).build())
        stage.until_state("runs", State.RUNNING)
        stage.apply(job("wide", "forever").indexed(2).label("fluxqueue/queue", queue).build())
        stage.until_reason("wide", "AccountLimit")
        stage.apply(job("narrow", "forever").label("fluxqueue/queue", queue).build())
        why = stage.until_reason("narrow", "AccountLimit").status.message
        assert f"is at a limit, and Job {stage.namespace}/wide waits for it before this" in why
        stage.kubectl("delete", "job", "runs", "-n", stage.namespace)
        stage.until_state("wide", State.RUNNING)
        odd = stage.kubectl(
            "patch", "fluxqueue", queue, "--type=merge", "-p", '{"spec":{"atLimit":"wait"}}', check=False
        )
        assert "spec.atLimit" in odd.stderr
    finally:
        stage.kubectl("delete", "job", "--all", "-n", stage.namespace, "--wait=false")
        stage.kubectl("delete", "fluxqueue", queue)


def test_any_resource_is_limited_in_a_queue_and_in_each_namespace_of_it(
    stage: Stage, accounts: Accounts
) -> None:
    queue = f"resources-{stage.namespace}"
    document = {
        "apiVersion": "jobs.converged-computing.org/v1alpha1",
        "kind": "FluxQueue",
        "metadata": {"name": queue},
    }
    limits = {"resources": {"memory": "1Ti"}, "perNamespace": {"resources": {"cpu": 3}}}
    stage.kubectl("apply", "-f", "-", stdin=json.dumps({**document, "spec": {"limits": limits}}))
    try:
        stage.apply(job("runs", "forever").label("fluxqueue/queue", queue).build())
        stage.until_state("runs", State.RUNNING)
        stage.apply(job("waits").label("fluxqueue/queue", queue).build())
        why = stage.until_reason("waits", "QueueLimit").status.message
        assert why == (
            f"namespace '{stage.namespace}' in the queue '{queue}' may use 3 cores at once: "
            "it uses 2, and this wants 2 more"
        )
        for bad, words in (
            ({"gpu": 1}, "has a domain such as nvidia.com/gpu"),
            ({"cpu": -1}, "a quantity is not negative"),
        ):
            for odd in ({"resources": bad}, {"perNamespace": {"resources": bad}}):
                patch = json.dumps({"spec": {"limits": odd}})
                assert (
                    words
                    in stage.kubectl(
                        "patch", "fluxqueue", queue, "--type=merge", "-p", patch, check=False
                    ).stderr
                )
        stage.kubectl(
            "patch",
            "fluxqueue",
            queue,
            "--type=merge",
            "-p",
            '{"spec":{"limits":{"perNamespace":{"resources":{"cpu":4}}}}}',
        )
        assert wrong([stage.until_state("waits", State.COMPLETED)]) == []
    finally:
        stage.kubectl("delete", "job", "--all", "-n", stage.namespace, "--wait=false")
        stage.kubectl("delete", "fluxqueue", queue)


def test_each_user_has_limits_in_a_queue_and_in_an_account(stage: Stage, accounts: Accounts) -> None:
    queue = f"users-{stage.namespace}"
    document = {
        "apiVersion": "jobs.converged-computing.org/v1alpha1",
        "kind": "FluxQueue",
        "metadata": {"name": queue},
    }
    stage.kubectl(
        "apply", "-f", "-", stdin=json.dumps({**document, "spec": {"limits": {"perUser": {"running": 1}}}})
    )

    def submit(user: str, name: str, work: str = "quick") -> None:
        manifest = json.dumps(
            job(name, work).label("fluxqueue/queue", queue).namespace(stage.namespace).build()
        )
        who = f"--as={user}", "--as-group=system:masters"
        stage.adopt(json.loads(stage.kubectl("create", *who, "-f", "-", "-o", "json", stdin=manifest).stdout))

    accounts.put("team", namespaces=[stage.namespace], limits={})
    try:
        submit("alice", "first", "forever")
        stage.until_state("first", State.RUNNING)
        submit("alice", "second")
        why = stage.until_reason("second", "QueueLimit").status.message
        assert why == (
            f"user 'alice' in the queue '{queue}' may run 1 workloads at once, "
            "and 1 run or have nodes reserved"
        )
        submit("bob", "other")
        assert wrong([stage.until_state("other", State.COMPLETED)]) == []
        accounts.change("team", limits={"perUser": {"resources": {"cpu": 3}}})
        stage.kubectl(
            "patch", "fluxqueue", queue, "--type=merge", "-p", '{"spec":{"limits":{"perUser":{"running":2}}}}'
        )
        why = stage.until_reason("second", "AccountLimit").status.message
        assert why == (
            f"user 'alice' in the account '{accounts.name('team')}' may use 3 cores at once: "
            "it uses 2, and this wants 2 more"
        )
        accounts.change("team", limits={"perUser": {"resources": {"cpu": 4}}})
        assert wrong([stage.until_state("second", State.COMPLETED)]) == []
    finally:
        stage.kubectl("delete", "job", "--all", "-n", stage.namespace, "--wait=false")
        stage.kubectl("delete", "fluxqueue", queue)


def test_one_workload_may_ask_for_no_more_than_its_queue_and_its_account_allow_each(
    stage: Stage, accounts: Accounts
) -> None:
    queue = f"each-{stage.namespace}"
    document = {
        "apiVersion": "jobs.converged-computing.org/v1alpha1",
        "kind": "FluxQueue",
        "metadata": {"name": queue},
    }
    stage.kubectl(
        "apply", "-f", "-", stdin=json.dumps({**document, "spec": {"limits": {"perWorkload": {"cores": 2}}}})
    )
    try:
        stage.apply(job("large").indexed(2).label("fluxqueue/queue", queue).build())
        why = stage.until_reason("large", "QueueLimit").status.message
        assert f"the queue '{queue}' allows one workload 2 cores, and this wants 4: ask for less" in why
        for number in range(2):
            stage.apply(job(f"small-{number}").label("fluxqueue/queue", queue).build())
            assert wrong([stage.until_state(f"small-{number}", State.COMPLETED)]) == []
        accounts.put("team", namespaces=[stage.namespace], limits={"perWorkload": {"resources": {"cpu": 3}}})
        stage.kubectl(
            "patch",
            "fluxqueue",
            queue,
            "--type=merge",
            "-p",
            '{"spec":{"limits":{"perWorkload":{"cores":4}}}}',
        )
        why = stage.until_reason("large", "AccountLimit").status.message
        assert (
            "allows one workload 3 cores, and this wants 4: "
            "ask for less (spec.limits.perWorkload of its FluxAccount)"
        ) in why
        patch = json.dumps({"spec": {"limits": {"perWorkload": {"resources": {"gpu": 1}}}}})
        for kind, name in (("fluxqueue", queue), ("fluxaccount", accounts.name("team"))):
            assert (
                "has a domain"
                in stage.kubectl("patch", kind, name, "--type=merge", "-p", patch, check=False).stderr
            )
        accounts.change("team", limits={"perWorkload": {"resources": {"cpu": 4}}})
        assert wrong([stage.until_state("large", State.COMPLETED)]) == []
    finally:
        stage.kubectl("delete", "job", "--all", "-n", stage.namespace, "--wait=false")
        stage.kubectl("delete", "fluxqueue", queue)
