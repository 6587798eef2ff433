import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from fluxqueue.api import names
from fluxqueue.local.binaries import Tool
from fluxqueue.local.controlplane import ControlPlane
from fluxqueue.local.processes import wait_until

WORK = " (kubectl fluxqueue jobs lists the work of the namespace; -n NAME chooses another)"
Run = Callable[..., subprocess.CompletedProcess[str]]


def test_without_fluxqueue_it_asks_whether_that_is_installed(bare_kubectl: Run) -> None:
    """Runs first: the kinds come with the next test."""
    for words in (["jobs"], ["queues"], ["explain", "fj/x"], ["explain", "x"]):
        done = bare_kubectl("fluxqueue", *words)
        assert done.returncode == 1
        assert "is fluxqueue installed in this cluster?" in done.stderr


def test_kubectl_finds_the_plugin(kubectl: Run) -> None:
    assert "kubectl-fluxqueue" in kubectl("plugin", "list").stdout


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["ho"], "hold\tkeep a waiting workload from starting"),
        (["explain", "job/wai"], "job/waiting\tPending WaitingForNodes"),
        (["jobs", "-q", "ni"], "night"),
        (["nodes", "node-1"], "node-1"),
        (["jobs", "-n", "kube-p"], "kube-public"),
    ],
)
def test_kubectl_completes_a_command_line_of_the_plugin(words: list[str], found: str, kubectl: Run) -> None:
    assert kubectl("__complete", "fluxqueue", *words).stdout == f"{found}\n:4\n"


def test_lists_what_runs_waits_and_ended_in_that_order(kubectl: Run) -> None:
    done = kubectl("fluxqueue", "jobs")
    assert done.returncode == 0, done.stderr
    titles, *rows = [line.split() for line in done.stdout.splitlines()]
    assert titles == ["OBJECT", "QUEUE", "STATE", "PODS", "WAIT", "RUN", "POS", "START", "INFO"]
    assert [row[:4] for row in rows] == [
        ["job/running", "default", "Running", "1"],
        ["job/waiting", "default", "Pending", "4"],
        ["job/done", "night", "Completed", "1"],
    ]
    assert rows[0][-1] == "node-1"
    assert rows[1][6] == "1"
    assert "WaitingForNodes" in done.stdout
    assert "\x1b[" not in done.stdout


@pytest.mark.parametrize(
    ("words", "objects"),
    [
        pytest.param(["-q", "night"], ["job/done"], id="a queue"),
        pytest.param(["--state", "pending,running"], ["job/running", "job/waiting"], id="states"),
        pytest.param(["-l", "team=done"], ["job/done"], id="labels"),
        pytest.param(["waiting"], ["job/waiting"], id="a name"),
        pytest.param(["job/done", "running"], ["job/running", "job/done"], id="two names"),
        pytest.param(["-n", "default"], ["job/running", "job/waiting", "job/done"], id="a namespace"),
    ],
)
def test_lists_only_what_was_asked_for(words: list[str], objects: list[str], kubectl: Run) -> None:
    done = kubectl("fluxqueue", "jobs", "--no-headers", *words)
    assert [line.split()[0] for line in done.stdout.splitlines()] == objects, done.stderr


def test_all_namespaces_have_a_column(kubectl: Run) -> None:
    first = kubectl("fluxqueue", "jobs", "-A").stdout.splitlines()
    assert first[0].split()[0] == "NAMESPACE"
    assert {line.split()[0] for line in first[1:]} == {"default"}


def test_says_that_there_is_nothing_as_kubectl_does(kubectl: Run) -> None:
    done = kubectl("fluxqueue", "jobs", "-n", "kube-public")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("No resources found in kube-public namespace.\n")


def test_says_that_a_name_is_not_there_as_kubectl_does(kubectl: Run) -> None:
    done = kubectl("fluxqueue", "jobs", "nobody")
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        done.stderr
        == f'Error from server (NotFound): fluxjobs.jobs.converged-computing.org "nobody" not found{WORK}\n'
    )


def test_prints_the_servers_objects_as_json_yaml_and_names(kubectl: Run) -> None:
    listed = json.loads(kubectl("fluxqueue", "jobs", "-o", "json").stdout)
    assert (listed["kind"], len(listed["items"])) == ("List", 3)
    assert {item["kind"] for item in listed["items"]} == {"FluxJob"}
    assert all("managedFields" not in item["metadata"] for item in listed["items"])
    assert yaml.safe_load(kubectl("fluxqueue", "jobs", "-o", "yaml").stdout) == listed
    named = kubectl("fluxqueue", "jobs", "-o", "name").stdout.split()
    assert named == [f"fluxjob.{names.GROUP}/{item['metadata']['name']}" for item in listed["items"]]
    alone = json.loads(kubectl("fluxqueue", "jobs", "done", "-o", "json").stdout)
    assert alone["spec"]["objectRef"]["name"] == "done"


def test_what_it_prints_kubectl_takes_back(kubectl: Run) -> None:
    (name,) = kubectl("fluxqueue", "jobs", "done", "-o", "name").stdout.split()
    assert kubectl("get", name, "-o", "jsonpath={.status.state}").stdout == "Completed"


@pytest.mark.parametrize("name", ["job/waiting", "jobs/waiting", "jobs.batch/waiting", "waiting"])
def test_explains_a_waiting_job_by_any_of_its_names(name: str, kubectl: Run) -> None:
    done = kubectl("fluxqueue", "explain", name)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("job/waiting in namespace default waits in queue default at position 1,")
    assert "4 pods, each with 2 cpu, together, for 5m\n" in done.stdout
    assert "WaitingForNodes: needs 24 cpu, 8 are free" in done.stdout


def test_explains_a_job_by_its_fluxjob_and_by_its_pod(kubectl: Run, cluster: ControlPlane) -> None:
    (fluxjob,) = kubectl("fluxqueue", "jobs", "running", "-o", "name").stdout.split()
    path = "/api/v1/namespaces/default/pods"

    def pods() -> list[str]:
        return [
            pod["metadata"]["name"]
            for pod in cluster.client.get(path)["items"]
            if pod["status"]["phase"] == "Running"
        ]

    wait_until(lambda: bool(pods()), "the pod of job/running runs", 30)
    (pod,) = pods()
    told = [
        kubectl("fluxqueue", "explain", name)
        for name in ("job/running", fluxjob, f"fj/{fluxjob.split('/')[1]}", f"pod/{pod}", pod)
    ]
    assert {one.returncode for one in told} == {0}, [one.stderr for one in told]
    for one in told:
        assert one.stdout.splitlines()[-1].split() == ["0", "node-1", pod, "node-1", "Running"]
        assert "Allocated   " in one.stdout


def test_tells_an_object_outside_the_queue_from_one_that_is_not_there(kubectl: Run) -> None:
    outside, missing, bare = (
        kubectl("fluxqueue", "explain", name) for name in ("job/unlisted", "job/nobody", "nobody")
    )
    assert (outside.returncode, missing.returncode, bare.returncode) == (1, 1, 1)
    assert outside.stderr.startswith("error: job/unlisted exists, but no FluxJob belongs to it: ")
    assert names.MANAGED_LABEL in outside.stderr
    assert missing.stderr == f'Error from server (NotFound): jobs.batch "nobody" not found{WORK}\n'
    assert bare.stderr.startswith(
        'Error from server (NotFound): fluxjobs.jobs.converged-computing.org "nobody" not found'
    )


def test_shows_queues_with_what_they_use(kubectl: Run) -> None:
    done = kubectl("fluxqueue", "queues")
    assert done.returncode == 0, done.stderr
    titles, default, row = done.stdout.splitlines()
    assert titles.split() == [
        "NAME",
        "STATE",
        "POLICY",
        "PRIORITY",
        "PENDING",
        "RUNNING",
        "NODES",
        "CORES",
        "AGE",
    ]
    assert default.split()[:3] == ["default", "open", "easy"]
    assert row.split()[:3] == ["night", "open", "fcfs"]
    assert len(kubectl("fluxqueue", "queues", "-o", "wide").stdout.splitlines()[0]) > len(titles)
    assert kubectl("fluxqueue", "queues", "-o", "name").stdout == f"fluxqueue.{names.GROUP}/night\n"


def test_says_the_versions_of_both_sides(kubectl: Run, cluster: ControlPlane) -> None:
    done = kubectl("fluxqueue", "version")
    assert done.stdout.splitlines()[1] == f"Server Version: {cluster.client.get('/version')['gitVersion']}"
    assert done.stdout.splitlines()[2].startswith("Queue: cannot be reached (there is no pod with the labels")


def test_watching_goes_on_with_a_line_for_each_change(cluster: ControlPlane, kubectl: Run) -> None:
    (name,) = kubectl("fluxqueue", "jobs", "waiting", "-o", "name").stdout.split()
    program = Path(sys.executable).with_name("kubectl-fluxqueue")
    command = [str(program), "jobs", "-w", "--no-headers", "-l", "team=waiting"]
    watching = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    )
    try:
        assert watching.stdout is not None
        assert watching.stdout.readline().split()[6] == "1"
        path = f"/apis/{names.API_VERSION}/namespaces/default/{names.FLUXJOBS}/{name.split('/')[1]}"
        cluster.client.request("PATCH", path, {"status": {"position": 2}})
        assert watching.stdout.readline().split()[6] == "2"
        cluster.client.request("PATCH", path, {"status": {"position": 1}})
        assert watching.stdout.readline().split()[6] == "1"
    finally:
        watching.terminate()
        watching.wait(10)
        if watching.stdout is not None:
            watching.stdout.close()


def test_a_person_without_the_right_reads_what_kubectl_would_say_and_who_helps(
    cluster: ControlPlane, tmp_path: Path
) -> None:
    cluster.client.request(
        "POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "nobody"}}
    )
    kubeconfig = cluster.service_account_kubeconfig("default", "nobody")
    program = Path(sys.executable).with_name("kubectl-fluxqueue")
    ours = subprocess.run(
        [str(program), "jobs", "--kubeconfig", str(kubeconfig)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    command = [str(cluster.binaries[Tool.KUBECTL]), "get", names.FLUXJOBS, "--kubeconfig", str(kubeconfig)]
    theirs = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={**os.environ, "KUBECACHEDIR": str(tmp_path)},
    )
    remedy = (
        "an administrator gives you the right by: kubectl create rolebinding NAME -n default "
        "--clusterrole=view --user=YOU"
    )
    assert (ours.returncode, ours.stderr) == (theirs.returncode, f"{theirs.stderr.rstrip()} ({remedy})\n")


@pytest.mark.parametrize(
    ("words", "said", "field", "value"),
    [
        pytest.param(
            ["hold", "waiting"],
            "job/waiting held\n"  # no queue runs here
            "job/waiting: the queue has not read this within 15 s; "
            "kubectl fluxqueue version shows whether it runs\n",
            "hold",
            True,
            id="hold",
        ),
        pytest.param(["hold", "job/waiting"], "job/waiting is held already\n", "hold", True, id="hold again"),
        pytest.param(["release", "job/waiting"], "job/waiting released\n", "hold", False, id="release"),
        pytest.param(
            ["prioritize", "job/waiting", "-5"],
            "job/waiting has priority -5\n",
            "priority",
            -5,
            id="a lower priority",
        ),
        pytest.param(
            ["prioritize", "job/waiting", "waiting", "6"],
            "job/waiting has priority 6\njob/waiting has priority 6 already\n",
            "priority",
            6,
            id="several names",
        ),
        pytest.param(
            ["move", "waiting", "-q", "night"],
            "job/waiting moved to queue night\n",
            "queue",
            "night",
            id="move",
        ),
        pytest.param(["cancel", "waiting"], "job/waiting cancelled\n", "cancel", True, id="cancel"),
    ],
)
def test_a_verb_writes_one_field(
    words: list[str], said: str, field: str, value: object, kubectl: Run
) -> None:
    """Runs last: what was waiting is not as it was."""
    done = kubectl("fluxqueue", *words)
    assert (done.returncode, done.stdout) == (0, said), done.stderr
    after = json.loads(kubectl("fluxqueue", "jobs", "waiting", "-o", "json").stdout)["spec"]
    assert after.get(field, False) == value


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(
            ["hold", "job/running"],
            "error: job/running runs: only what waits can be held\n",
            id="hold what runs",
        ),
        pytest.param(
            ["move", "done", "-q", "night"],
            "error: job/done has ended: only what waits can be moved\n",
            id="move what ended",
        ),
        pytest.param(
            ["cancel", "done"], "error: job/done has ended already (Completed)\n", id="cancel what ended"
        ),
        pytest.param(
            ["move", "waiting", "-q", "nowhere"],
            "error: there is no queue 'nowhere': there are default, night\n",
            id="to nowhere",
        ),
        pytest.param(
            ["prioritize", "job/nobody", "running", "3"],
            f'Error from server (NotFound): jobs.batch "nobody" not found{WORK}\n'
            "error: job/running runs: only what waits can be given another priority\n",
            id="each of several names that cannot be",
        ),
        pytest.param(
            ["hold", "job/nobody"],
            f'Error from server (NotFound): jobs.batch "nobody" not found{WORK}\n',
            id="hold nobody",
        ),
    ],
)
def test_a_verb_that_makes_no_sense_is_one_sentence_and_exit_1(
    words: list[str], said: str, kubectl: Run
) -> None:
    done = kubectl("fluxqueue", *words)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", said)
