import pytest
from support.plugin_server import PluginServer, fluxjob

from fluxqueue.api import names
from fluxqueue.cli.api_client import ClusterError
from fluxqueue.cli.shell import ANY_SHELL, choose_pod, exec_words

PODS = "/api/v1/namespaces/default/pods"
RUNNING = fluxjob("solver", state="Running", nodes="node-[1-3]")


def pod(rank: int | None, phase: str = "Running", **meta: object) -> dict[str, object]:
    indexed = {} if rank is None else {names.COMPLETION_INDEX_ANNOTATION: str(rank)}
    return {
        "metadata": {
            "name": f"solver-{rank}-x",
            "namespace": "default",
            "uid": f"p{rank}",
            "annotations": indexed,
            **meta,
        },
        "spec": {"nodeName": f"node-{(rank or 0) + 1}", "containers": [{"name": "main"}, {"name": "helper"}]},
        "status": {"phase": phase},
    }


def server_with(*pods: dict[str, object]) -> PluginServer:
    return PluginServer().has_jobs(RUNNING).has(PODS, *pods)


def test_the_first_pod_that_runs_is_entered_and_the_others_are_named() -> None:
    server = server_with(pod(2), pod(0, "Pending"), pod(1))
    entered = choose_pod(server.client, [RUNNING], "solver", None)
    assert entered.words == "rank 1, pod solver-1-x on node-2; --rank chooses another of 2"


def test_a_rank_or_the_name_of_a_pod_chooses() -> None:
    server = server_with(pod(0), pod(1), pod(2))
    assert choose_pod(server.client, [RUNNING], "job/solver", 2).rank == 2
    assert choose_pod(server.client, [RUNNING], "pod/solver-1-x", None).rank == 1


def test_one_pod_alone_is_said_without_a_choice() -> None:
    assert (
        choose_pod(server_with(pod(0)).client, [RUNNING], "solver", None).words
        == "rank 0, pod solver-0-x on node-1"
    )


@pytest.mark.parametrize(
    ("pods", "rank", "says"),
    [
        ([pod(0), pod(1)], 2, "no pod of rank 2 of solver runs now: there run 0, 1"),
        (
            [pod(0, "Pending")],
            None,
            (
                "no pod of solver runs now (job/solver is running): "
                "kubectl fluxqueue logs job/solver has what it printed"
            ),
        ),
        ([pod(0, deletionTimestamp="2026-03-02T12:00:00Z")], None, "no pod of solver runs now"),
    ],
)
def test_what_cannot_be_entered_is_a_sentence(
    pods: list[dict[str, object]], rank: int | None, says: str
) -> None:
    with pytest.raises(ClusterError, match=r"^error: ") as caught:
        choose_pod(server_with(*pods).client, [RUNNING], "solver", rank)
    assert says in str(caught.value)


def test_waiting_work_says_how_to_wait_for_it() -> None:
    waiting = fluxjob("solver", state="Pending")
    with pytest.raises(ClusterError, match="wait job/solver --for started waits for it"):
        choose_pod(PluginServer().has_jobs(waiting).has(PODS).client, [waiting], "solver", None)


def test_a_simulated_pod_has_no_container_to_enter() -> None:
    server = server_with(pod(0))
    server.objects["/api/v1/nodes/node-1"] = {
        "status": {"nodeInfo": {"containerRuntimeVersion": "kwok://0.8"}}
    }
    with pytest.raises(ClusterError, match="node node-1 is simulated"):
        choose_pod(server.client, [RUNNING], "solver", None)


def test_kubectl_gets_the_pod_the_container_and_the_command() -> None:
    entered = choose_pod(server_with(pod(1)).client, [RUNNING], "solver", None)
    words = exec_words(
        "/bin/kubectl", entered, ["ls", "-l"], container="helper", terminal=False, target=["--context", "lab"]
    )
    assert words == [
        "/bin/kubectl",
        "exec",
        "-i",
        "--context",
        "lab",
        "-n",
        "default",
        "solver-1-x",
        "-c",
        "helper",
        "--",
        "ls",
        "-l",
    ]
    shell = exec_words("kubectl", entered, [], container="", terminal=True, target=[])
    assert shell == [
        "kubectl",
        "exec",
        "-i",
        "-t",
        "-n",
        "default",
        "solver-1-x",
        "-c",
        "main",
        "--",
        *ANY_SHELL,
    ]
