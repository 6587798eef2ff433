import io
import json
from collections.abc import Sequence
from typing import Any

import pytest

from fluxqueue.cli.api_client import ApiRefused, ClusterError, ServerUnreachable
from fluxqueue.cli.doctor import doctor, show_replicas
from fluxqueue.cli.queue_endpoint import DoctorAccount, QueueAddress, QueueEndpoint, Tokens, find_queue

FINDING = {
    "what": "graph-jobs",
    "about": "job 7",
    "sentence": "job 7 holds 0 places",
    "remedy": "the sweep mends it",
    "invariant": "I1",
}
ACCOUNTS = "/api/v1/namespaces/system/serviceaccounts"
TOKEN = {"status": {"token": "abc"}}


class _Answers:
    """Stands for a connection to the API server: what each path answers."""

    def __init__(self, answers: dict[str, object]) -> None:
        self._answers = {
            f"{ACCOUNTS}/doctor/token": TOKEN,
            f"{ACCOUNTS}/doctor-repair/token": TOKEN,
            **answers,
        }
        self.asked: list[tuple[str, dict[str, str]]] = []

    def get(self, path: str, params: object = None, headers: dict[str, str] | None = None) -> bytes:
        self.asked.append((path, dict(headers or {})))
        answer = self._answers[path]
        if isinstance(answer, Exception):
            raise answer
        return json.dumps(answer).encode()

    def post(self, path: str, body: object = None, headers: dict[str, str] | None = None) -> bytes:
        return self.get(path, headers=headers)

    def __enter__(self) -> "_Answers":
        return self

    def __exit__(self, *_: object) -> None:
        pass


def endpoint(answers: dict[str, object], paths: Sequence[str]) -> QueueEndpoint:
    client: Any = _Answers(answers)
    return QueueEndpoint(client, paths, Tokens(client, DoctorAccount("system", "doctor")))


def asked(
    answers: dict[str, object], paths: Sequence[str] = ("",), *, repair: bool = False, as_json: bool = False
) -> tuple[int, str]:
    out = io.StringIO()
    code = doctor(endpoint(answers, paths), out, repair=repair, as_json=as_json)
    return code, out.getvalue()


def pod(name: str, namespace: str = "system") -> dict[str, Any]:
    ports = [{"name": "health", "containerPort": 8080}, {"name": "metrics", "containerPort": 8443}]
    meta = {"name": name, "namespace": namespace, "annotations": {"fluxqueue/doctor": "doctor"}}
    return {"metadata": meta, "spec": {"containers": [{"ports": ports}]}}


def test_all_is_well() -> None:
    assert asked({"/doctor": {"findings": [], "repaired": []}}) == (
        0,
        "The cluster, the queue and its graph agree.\n",
    )


def test_a_difference_is_named_with_its_remedy_and_the_exit_code_says_so() -> None:
    code, text = asked({"/doctor": {"findings": [FINDING], "repaired": []}})
    assert code == 1
    assert text == "job 7 holds 0 places (I1, graph-jobs)\n  the sweep mends it\n1 difference\n"


def test_repairs_are_listed_and_are_no_failure() -> None:
    code, text = asked({"/doctor/repair": {"findings": [], "repaired": [FINDING]}}, repair=True)
    assert (code, text.splitlines()[0]) == (0, "repaired: job 7 holds 0 places")


def test_json_is_the_queues_response() -> None:
    code, text = asked({"/doctor": {"findings": [FINDING], "repaired": []}}, as_json=True)
    assert (code, json.loads(text)["findings"]) == (1, [FINDING])


def test_replicas_are_asked_until_one_leads() -> None:
    standby = ApiRefused(503, "", "this replica does not lead")
    assert asked({"/a/doctor": standby, "/b/doctor": {"findings": [], "repaired": []}}, ("/a", "/b"))[0] == 0
    with pytest.raises(ClusterError, match="no replica of the queue leads"):
        asked({"/a/doctor": standby}, ("/a",))


def test_the_roll_call_says_of_each_replica_what_it_does_and_what_is_away() -> None:
    first, second, third = (f"/api/v1/namespaces/system/pods/https:queue-{each}:8443/proxy" for each in "abc")
    answers: dict[str, object] = {
        f"{first}/status": {"ready": True, "role": "follower", "missing": {}},
        f"{second}/status": {
            "ready": False,
            "role": "leader",
            "missing": {"fluxion": "Fluxion does not answer"},
        },
        f"{third}/status": ApiRefused(503, "ServiceUnavailable", "connection refused", b"{}"),
    }
    out = io.StringIO()
    show_replicas(endpoint(answers, (first, second, third)), out)
    assert out.getvalue().splitlines() == [
        "Queue queue-a: follower, ready",
        "Queue queue-b: leader, not ready",
        "  fluxion: Fluxion does not answer",
        "Queue queue-c: does not answer (Error from server (ServiceUnavailable): connection refused)",
    ]


@pytest.mark.parametrize(
    ("repair", "account", "path"),
    [
        pytest.param(False, "doctor", "/doctor", id="ask"),
        pytest.param(True, "doctor-repair", "/doctor/repair", id="repair"),
    ],
)
def test_the_pods_are_asked_with_a_token_of_the_account_that_may(
    repair: bool, account: str, path: str
) -> None:
    proxy = "/api/v1/namespaces/system/pods/https:queue-a:8443/proxy"
    client: Any = _Answers(
        {"/api/v1/pods": {"items": [pod("queue-a")]}, proxy + path: {"findings": [], "repaired": []}}
    )
    with find_queue(QueueAddress(), lambda: client) as queue:
        doctor(queue, io.StringIO(), repair=repair, as_json=False)
    assert client.asked[1:] == [
        (f"{ACCOUNTS}/{account}/token", {}),
        (proxy + path, {"Fluxqueue-Token": "abc"}),
    ]


def test_pods_that_pose_as_a_queue_in_another_namespace_get_no_token() -> None:
    client: Any = _Answers({"/api/v1/pods": {"items": [pod("queue-a"), pod("queue-b", "elsewhere")]}})
    refused = pytest.raises(
        ClusterError, match="namespaces elsewhere, system: choose one with --system-namespace"
    )
    with refused, find_queue(QueueAddress(), lambda: client):
        pass
    assert [path for path, _ in client.asked] == ["/api/v1/pods"]


FORBIDDEN = ApiRefused(403, "Forbidden", "no", b"{}")


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param({"/api/v1/namespaces/system/pods": FORBIDDEN}, id="to list pods"),
        pytest.param({f"{ACCOUNTS}/doctor/token": FORBIDDEN}, id="to get a token"),
        pytest.param(
            {"/api/v1/namespaces/system/pods/https:queue-a:8443/proxy/doctor": FORBIDDEN},
            id="to reach the pod",
        ),
    ],
)
def test_a_missing_right_is_one_sentence_with_the_remedy(answers: dict[str, object]) -> None:
    client: Any = _Answers({"/api/v1/namespaces/system/pods": {"items": [pod("queue-a")]}, **answers})
    with (
        pytest.raises(ClusterError) as refused,
        find_queue(QueueAddress(namespace="system"), lambda: client) as queue,
    ):
        queue.ask("/doctor")
    assert "kubectl -n system create rolebinding NAME --role=" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_who_may_not_look_everywhere_is_looked_for_in_the_usual_namespace() -> None:
    listed = {
        "/api/v1/pods": FORBIDDEN,
        "/api/v1/namespaces/fluxqueue-system/pods": {"items": [pod("queue-a", "fluxqueue-system")]},
    }
    client: Any = _Answers(listed)
    with find_queue(QueueAddress(), lambda: client):
        pass


def test_the_queues_own_refusal_is_shown_as_it_is() -> None:
    refusal = ApiRefused(
        409, "", "HTTP 409", b'{"error": "a repair is running: ask again when it has ended"}'
    )
    with pytest.raises(ClusterError, match="^error: a repair is running: ask again when it has ended$"):
        asked({"/doctor/repair": refusal}, repair=True)


@pytest.mark.parametrize(
    "silence",
    [
        ServerUnreachable("The connection was refused"),
        ApiRefused(503, "ServiceUnavailable", "error trying to reach service"),
    ],
)
def test_a_queue_that_is_stopped_is_not_said_to_lead_soon(silence: ClusterError) -> None:
    with pytest.raises(
        ClusterError, match="no replica of the queue answers, so it is stopped or cannot be reached"
    ) as raised:
        asked({"a/doctor": silence, "b/doctor": silence}, ["a", "b"])
    assert "ask again" not in str(raised.value)
