"""Every command of the plugin against the real control plane, as a person who may edit one namespace and read
queues and nodes.

The walk is one test, because each step needs what the one before has left. At its end, each command was run
by that person: with success, or, where it is for administrators, with the sentence that says so.
"""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from support.builders import make_job
from support.end_to_end import Stage

from fluxqueue.api import names
from fluxqueue.api.fluxjobs import State
from fluxqueue.cli.plugin import VERBS
from fluxqueue.local.inprocess import RELEASE
from fluxqueue.local.operator_requests import write_queue_authority

RUN_SECONDS = "fluxqueue.local/run-seconds"
HISTORY = "fluxqueue-history"
IMAGE = "registry.example.com/solver"
PROGRAM = Path(sys.executable).with_name("kubectl-fluxqueue")


class Person:
    """A person with a kubeconfig of their own, and what they have run."""

    def __init__(self, stage: Stage, kubeconfig: Path, environment: Mapping[str, str]) -> None:
        self.stage = stage
        self.environment = {**os.environ, "KUBECONFIG": str(kubeconfig), **environment}
        self.ran: set[str] = set()

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the namespace of the person's context."""
        self.ran.add(words[0])
        return subprocess.run(
            [PROGRAM, *words], capture_output=True, text=True, timeout=150, check=False, env=self.environment
        )

    def says(self, *words: str) -> str:
        """Run a command that succeeds, and return its output."""
        done = self.run(*words)
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout

    def refused(self, *words: str) -> str:
        """Run a command that the person may not, and return its sentence."""
        done = self.run(*words)
        assert (done.returncode, done.stderr.count("\n")) == (1, 1), (words, done.stderr)
        return done.stderr

    def on_screen(self, *words: str, until: str, keys: bytes) -> str:
        """Run a command on a terminal until a text is shown, press keys,
        and return all output when it has ended.
        """
        self.ran.add(words[0])
        ours, theirs = pty.openpty()
        environment = {**self.environment, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
        process = subprocess.Popen(
            [PROGRAM, *words], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
        )
        os.close(theirs)
        shown, deadline, pressed = b"", time.monotonic() + 120, False
        try:
            while process.poll() is None or select.select([ours], [], [], 0)[0]:
                assert time.monotonic() < deadline, shown[-2000:]
                if select.select([ours], [], [], 0.2)[0]:
                    try:
                        shown += os.read(ours, 65_536)
                    except OSError:  # the other end is closed
                        break
                if not pressed and until.encode() in shown:
                    pressed = os.write(ours, keys) > 0
            assert process.wait(60) == 0, shown[-2000:]
        finally:
            if process.poll() is None:
                process.kill()
                process.wait(60)
            os.close(ours)
        return shown.decode(errors="replace")


@pytest.fixture
def person(stage: Stage, tmp_path: Path) -> Iterator[Person]:
    """May edit the namespace, read its history, and read queues and nodes of the cluster."""
    where = stage.namespace
    ada = f"--serviceaccount={where}:ada"
    stage.kubectl("create", "serviceaccount", "ada")
    stage.kubectl("create", "rolebinding", "ada-edit", "--clusterrole=edit", ada)
    stage.kubectl("create", "serviceaccount", HISTORY)
    stage.kubectl(
        "create", "rolebinding", HISTORY, f"--clusterrole={HISTORY}", f"--serviceaccount={where}:{HISTORY}"
    )
    stage.kubectl("create", "rolebinding", "ada-history", f"--clusterrole={HISTORY}-reader", ada)
    cluster_wide = [f"{where}-queues", f"{where}-nodes"]
    stage.kubectl(
        "create", "clusterrolebinding", cluster_wide[0], f"--clusterrole={RELEASE}-fluxqueues-view", ada
    )
    stage.kubectl("create", "clusterrole", cluster_wide[1], "--verb=get,list", "--resource=nodes")
    stage.kubectl("create", "clusterrolebinding", cluster_wide[1], f"--clusterrole={cluster_wide[1]}", ada)
    cluster = stage.cluster
    authority = write_queue_authority(cluster.control_plane.client, tmp_path / "ca.crt", RELEASE)
    environment = {
        "FLUXQUEUE_QUEUE_URL": f"https://127.0.0.1:{cluster.programs['queue'].metrics_port}",
        "FLUXQUEUE_QUEUE_CA": str(authority),
    }
    person = Person(stage, cluster.control_plane.service_account_kubeconfig(where, "ada"), environment)
    stage.until(
        "the rights are there",
        lambda: all(person.run(verb).returncode == 0 for verb in ("jobs", "queues", "nodes", "history")),
    )
    yield person
    stage.kubectl("delete", "clusterrolebinding", *cluster_wide)
    stage.kubectl("delete", "clusterrole", cluster_wide[1])


def test_a_person_of_one_namespace_runs_every_command(stage: Stage, person: Person, tmp_path: Path) -> None:
    submits(person)
    looks(person)
    steers(person)
    watches(person)
    sees_the_cluster(person)
    reads_what_was(person)
    is_told_what_is_for_administrators(person)
    assert "complete -F" in person.says("completion", "bash")
    assert person.says("version").startswith("Client Version: ")
    assert person.ran == set(VERBS)


def submits(person: Person) -> None:
    stage = person.stage
    shown = person.says("submit", "--image", IMAGE, "-N", "2", "--dry-run", "-o", "yaml", "--", "solve")
    assert "completions: 2" in shown
    name = person.says(
        "submit", "--image", IMAGE, "-J", "quick", "-N", "2", "-o", "name", "--", "solve"
    ).strip()
    assert name == "job.batch/quick"
    stage.adopt(json.loads(stage.kubectl("get", "job", "quick", "-o", "json").stdout))
    assert "job/quick completed" in person.says("wait", "quick", "--timeout", "2m")
    stage.apply(
        make_job("long")
        .cpu("2")
        .indexed(2)
        .annotation(names.DURATION_ANNOTATION, "2h")
        .pod_annotation(RUN_SECONDS, "forever")
        .build()
    )
    stage.until_state("long", State.RUNNING)
    stage.apply(
        make_job("huge")
        .cpu("8")
        .indexed(8)
        .label("app", "md")
        .annotation(names.DURATION_ANNOTATION, "1h")
        .build()
    )
    stage.until(
        "huge waits",
        lambda: (job := stage.row("huge").fluxjob) is not None and job.status.reason == "WaitingForNodes",
    )


def looks(person: Person) -> None:
    table = person.says("jobs")
    assert table.splitlines()[1].split()[:3] == ["job/long", "default", "Running"]
    assert (
        person.says("jobs", "-l", "app=md", "--format", "{object} {state}", "--no-headers")
        == "job/huge Pending\n"
    )
    narrow = subprocess.run(
        [PROGRAM, "jobs"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**person.environment, "COLUMNS": "60"},
    )
    assert max(map(len, narrow.stdout.splitlines())) <= 60
    assert "WaitingForNodes" in person.says("explain", "huge")
    person.stage.until("describe says until when", lambda: describes(person.stage, "huge"), 60)
    assert "job/huge" in person.says("priority")
    assert "an administrator" in person.refused("jobs", "-A")
    assert '"nobody" not found' in person.refused("explain", "nobody")
    for verb in ("logs", "shell"):
        assert "is simulated (kwok), so pods there have states and no containers" in person.refused(
            verb, "long"
        )
    used = person.says("efficiency", "long")
    assert "2 pods: 4 cores" in used
    assert "not known: node " in used


def describes(stage: Stage, name: str) -> bool:
    """True if `kubectl describe job` says why the Job waits and when it starts;
    the reason may have become that of its reservation.
    """
    told = stage.kubectl("describe", "job", name).stdout
    return "WaitingForNodes" in told and ("Z, position 1 in the queue 'default'" in told)


def steers(person: Person) -> None:
    stage = person.stage
    assert person.says("hold", "huge") == "job/huge held\n"
    assert person.says("release", "huge") == "job/huge released\n"
    assert person.says("prioritize", "huge", "7") == "job/huge has priority 7\n"
    assert (
        person.says("move", "-l", "app=md", "-q", "default") == "Nothing that is selected can be changed.\n"
    )
    assert person.says("requeue", "long", "--timeout", "2m") == "job/long requeued\n"
    stage.until("something runs again", lambda: any(row.state == State.RUNNING for row in stage.rows()), 120)
    stage.kubectl("delete", "job", "huge")
    stage.until_state("long", State.RUNNING)
    stage.apply(make_job("late").cpu("8").indexed(8).build())
    stage.until(
        "late waits", lambda: (job := stage.row("late").fluxjob) is not None and bool(job.status.reason)
    )
    assert person.says("cancel", "late") == "job/late cancelled\n"
    stage.until_state("late", State.CANCELLED)


def watches(person: Person) -> None:
    shown = person.on_screen("top", until="job/long", keys=b"q")
    assert "1 running" in shown
    assert "nodes take work" in shown


def sees_the_cluster(person: Person) -> None:
    where = person.stage.namespace
    assert f"{where}/job/long" in person.says("nodes", "--each")
    assert person.says("graph", "--ascii").splitlines()[1].startswith("cluster")
    assert "job/long" in person.says("reservations", "--gantt", "--ascii")
    assert (
        person.run("queues").stderr
        == "Cores in use are not shown: you may not list the FluxJobs of all namespaces.\n"
    )
    for verb in ("queues", "shares"):
        person.says(verb)


def reads_what_was(person: Person) -> None:
    stage = person.stage
    stage.until("the end is in the history", lambda: "job/quick" in person.says("history", "--no-headers"))
    assert "Kubernetes keeps no figures of pods that have ended" in person.says("efficiency", "quick")
    stage.kubectl("delete", "job", "quick")
    stage.until(
        "the history alone knows it",
        lambda: "is no longer in the cluster" in person.says("efficiency", "quick"),
        120,
    )
    assert "jobs" in person.says("report", "--by", "queue", "-o", "csv").splitlines()[0]
    assert (
        sum(
            step["completed"]
            for step in json.loads(person.says("stats", "-o", "json", "--since", "1h", "--step", "1h"))
        )
        >= 1
    )
    assert "an administrator" in person.refused("history", "-A")


def is_told_what_is_for_administrators(person: Person) -> None:
    assert "--clusterrole=fluxqueue-operator" in person.refused("queue", "hold", "default")
    assert "an administrator gives you the right by" in person.refused("doctor")
    refused = person.refused("uninstall", "--release-held", "--yes")
    assert "you may not" in refused or "forbidden" in refused
    assert (
        person.stage.cluster.kubectl("get", "crd", f"{names.FLUXJOBS}.{names.GROUP}", "-o", "name").returncode
        == 0
    )


def test_a_person_without_any_right_reads_who_can_give_it(stage: Stage) -> None:
    stage.kubectl("create", "serviceaccount", "nobody")
    kubeconfig = stage.cluster.control_plane.service_account_kubeconfig(stage.namespace, "nobody")
    person = Person(stage, kubeconfig, {})
    words = {
        "submit": ("--image", IMAGE),
        "prioritize": ("x", "5"),
        "move": ("x", "-q", "default"),
        "queue": ("hold", "default"),
    }
    named = ("explain", "efficiency", "wait", "logs", "shell", "hold", "release", "cancel", "requeue")
    everybody = ("queues", "reservations", "shares")  # rbac.queuesReadableBy of the chart: who is logged in
    assert [person.run(verb).returncode for verb in everybody] == [0] * len(everybody)
    for verb in VERBS.keys() - {"completion", "version", "top", "uninstall", "doctor", *everybody}:
        said = person.refused(verb, *words.get(verb, ("x",) if verb in named else ()))
        assert "an administrator" in said, (verb, said)


@pytest.mark.parametrize(
    ("condition", "state"),
    [
        ("Reconciling", "Pending"),
        ("Allocated", "Running"),
        ("Started", "Running"),
        ("Finished", "Completed"),
        ("Stalled", "Pending"),
    ],
)
def test_kubectl_wait_waits_for_each_condition(stage: Stage, condition: str, state: str) -> None:
    seconds = "forever" if state == "Running" else "1"
    cpu = "900" if condition == "Stalled" else "2"
    job = make_job("work").cpu(cpu).pod_annotation(RUN_SECONDS, seconds)
    if condition == "Reconciling":
        job = job.annotation(names.BEGIN_ANNOTATION, "+2h")
    stage.apply(job.build())
    stage.until("it has a FluxJob", lambda: stage.row("work").fluxjob)
    (name,) = [job.metadata.name for job in stage.fluxjobs()]
    done = stage.kubectl(
        "wait", f"--for=condition={condition}", f"fluxjob/{name}", "--timeout=120s", check=False
    )
    assert done.returncode == 0, done.stderr
    shown = json.loads(stage.kubectl("get", "fluxjob", name, "-o", "json").stdout)["status"]
    assert shown["state"] == state
    assert {each["type"] for each in shown["conditions"]} >= {"Allocated", "Started", "Finished", condition}
