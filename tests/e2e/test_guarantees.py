"""What is guaranteed to accounts on a real control plane, while people edit, delete and kill in between."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from support.builders import JobBuilder, make_job, make_queue
from support.end_to_end import Stage
from support.stage_accounts import Accounts

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import FluxJob, State

RUN_SECONDS = "fluxqueue.local/run-seconds"


class Site:
    """An account with a guarantee, whose namespace is that of the test,
    and the namespace ``guests`` of an account without one.
    """

    def __init__(self, stage: Stage, accounts: Accounts) -> None:
        self._stage = stage
        self.accounts = accounts
        self.queue = f"lends-{stage.namespace}"
        self.guests = f"{stage.namespace}-guests"

    def open(self) -> None:
        self._stage.kubectl("create", "namespace", self.guests)
        self._stage.kubectl("label", "namespace", self.guests, "fluxqueue/managed=true")
        self.accounts.put("guest", namespaces=[self.guests])

    def close(self) -> None:
        for namespace in (self._stage.namespace, self.guests):
            self._stage.kubectl("delete", "job", "--all", "-n", namespace, "--wait=false")
        self._stage.until("nothing of the guests is left", lambda: not self.guest_jobs())
        self._stage.kubectl("delete", "namespace", self.guests, "--wait=false")
        self._stage.kubectl("delete", "fluxqueue", self.queue, "--ignore-not-found")

    def lends(self, **spec: Any) -> None:
        """Set the rules of the queue of all work here."""
        self._stage.kubectl("apply", "-f", "-", stdin=json.dumps(make_queue(self.queue, **spec)))

    def job(self, name: str, nodes: int, seconds: str = "forever") -> JobBuilder:
        made = make_job(name).indexed(nodes).cpu("8").label(names.QUEUE_LABEL, self.queue)
        return made.annotation(names.DURATION_ANNOTATION, "1h").pod_annotation(RUN_SECONDS, seconds)

    def borrow(self, name: str, nodes: int) -> None:
        """Apply a Job of the guests, and wait until it runs."""
        self._stage.kubectl(
            "apply",
            "-n",
            self.guests,
            "-f",
            "-",
            stdin=json.dumps(self.job(name, nodes).namespace(self.guests).build()),
        )
        self.until_guest(name, State.RUNNING)

    def guest_jobs(self) -> dict[str, FluxJob]:
        items = json.loads(self._stage.kubectl("get", "fluxjobs", "-n", self.guests, "-o", "json").stdout)[
            "items"
        ]
        return {each.spec.object_ref.name: each for each in msgspec.convert(items, list[FluxJob])}

    def until_guest(self, name: str, state: str) -> FluxJob:
        def found() -> FluxJob | None:
            each = self.guest_jobs().get(name)
            return each if each is not None and each.status.state == state else None

        shown = self._stage.until(f"{name} of the guests is {state}", found)
        assert shown is not None
        return shown


@pytest.fixture
def site(stage: Stage) -> Iterator[Site]:
    accounts = Accounts(stage)
    made = Site(stage, accounts)
    made.open()
    yield made
    made.close()
    accounts.delete()


def test_a_queue_keeps_its_borrowers_until_its_administrator_lets_them_be_preempted(
    stage: Stage, site: Site
) -> None:
    site.lends(preemption="never")
    site.accounts.put("owner", namespaces=[stage.namespace], guaranteed={"nodes": 2})
    site.borrow("borrower", 8)
    stage.apply(site.job("mine", 2).build())
    stage.until_reason("mine", "WaitingForNodes")
    guarantee = f"to '{site.accounts.name('owner')}': 2 nodes (used 0, borrowed 0)"
    stage.until(
        "explain knows the guarantee", lambda: guarantee in stage.plugin("explain", "job/mine").stdout, 60
    )
    assert site.guest_jobs()["borrower"].status.state == State.RUNNING
    site.lends(preemption="lowerPriority")
    stage.until_state("mine", State.RUNNING)
    lost = site.until_guest("borrower", State.PENDING)
    assert lost.status.reason == "Preempted"


def test_a_guarantee_given_or_raised_while_work_waits_takes_effect_and_one_that_is_deleted_ends(
    stage: Stage, site: Site
) -> None:
    site.lends(preemption="lowerPriority")
    site.accounts.put("owner", namespaces=[stage.namespace])
    site.borrow("large", 6)
    site.borrow("small", 2)
    stage.apply(site.job("mine", 2).build())
    stage.until_reason("mine", "WaitingForNodes")
    site.accounts.put("owner", namespaces=[stage.namespace], guaranteed={"nodes": 1})
    stage.until("what is guaranteed is shown", lambda: site.accounts.status("owner").guaranteed)
    assert {each.status.state for each in site.guest_jobs().values()} == {State.RUNNING}, (
        "the Job is beyond the guarantee"
    )
    site.accounts.change("owner", guaranteed={"nodes": 2})
    stage.until_state("mine", State.RUNNING)
    lost = site.until_guest("small", State.PENDING)
    assert site.guest_jobs()["large"].status.state == State.RUNNING, "no more is taken than needed"
    site.accounts.delete("owner")
    stage.kubectl("delete", "job", "mine")
    again = site.until_guest("small", State.RUNNING)
    assert (again.status.submitted_at, again.status.requeues) == (lost.status.submitted_at, 1)


def test_a_borrower_has_its_grace_also_from_the_next_leader_and_takes_nothing_back(
    stage: Stage, site: Site
) -> None:
    site.lends(preemption="lowerPriority", preemptionRules={"graceSeconds": 10})
    site.accounts.put("owner", namespaces=[stage.namespace], guaranteed={"nodes": 8})
    site.borrow("borrower", 8)
    stage.apply(site.job("mine", 8).build())
    site.until_guest("borrower", State.DRAINING)
    stage.kill("queue")
    stage.until_ready("queue")
    stage.until_state("mine", State.RUNNING)
    waits = site.until_guest("borrower", State.PENDING)
    assert "the resources are guaranteed" in waits.status.message
    stage.succeed("mine")
    stage.until_state("mine", State.COMPLETED)
    assert site.until_guest("borrower", State.RUNNING).status.requeues == 1


def test_work_within_a_guarantee_is_spared_by_higher_priority_and_its_own_account_may_take_it(
    stage: Stage, site: Site
) -> None:
    site.lends(preemption="lowerPriority")
    site.accounts.put("owner", namespaces=[stage.namespace], guaranteed={"nodes": 8})
    stage.apply(site.job("mine", 8).build())
    stage.until_state("mine", State.RUNNING)
    urgent = site.job("urgent", 8).annotation(names.PRIORITY_ANNOTATION, "50").namespace(site.guests).build()
    stage.kubectl("apply", "-n", site.guests, "-f", "-", stdin=json.dumps(urgent))
    stage.until(
        "the guest waits for nodes",
        lambda: (seen := site.guest_jobs().get("urgent")) and seen.status.reason == "WaitingForNodes",
    )
    stage.apply(site.job("own", 8, "0.5").annotation(names.PRIORITY_ANNOTATION, "60").build())
    stage.until_state("own", State.COMPLETED)
    mine = stage.until_state("mine", State.RUNNING).fluxjob
    assert mine is not None
    assert mine.status.requeues == 1
    assert site.guest_jobs()["urgent"].status.state == State.PENDING
