import io
import json
from collections.abc import Sequence

import pytest

from fluxqueue.cli.cluster import ApiRefused, ClusterError
from fluxqueue.cli.doctor import Queue, doctor, roll_call

FINDING = {"what": "graph-jobs", "about": "job 7", "sentence": "job 7 holds 0 places", "remedy": "the sweep mends it", "invariant": "I1"}


class _Answers:
    """Stands for a connection to the API server: what each path answers."""

    def __init__(self, answers: dict[str, object]) -> None:
        self._answers = answers
        self.asked: list[str] = []

    def get(self, path: str) -> bytes:
        self.asked.append(path)
        answer = self._answers[path]
        if isinstance(answer, Exception):
            raise answer
        return json.dumps(answer).encode()

    post = get


def asked(answers: dict[str, object], paths: Sequence[str] = ("",), *, repair: bool = False, as_json: bool = False) -> tuple[int, str]:
    out = io.StringIO()
    code = doctor(Queue(_Answers(answers), paths), out, repair=repair, as_json=as_json)  # type: ignore[arg-type]  # two methods are used
    return code, out.getvalue()


def test_all_is_well() -> None:
    assert asked({"/doctor": {"findings": [], "repaired": []}}) == (0, "The cluster, the queue and its graph agree.\n")


def test_a_difference_is_named_with_its_remedy_and_the_exit_code_says_so() -> None:
    code, text = asked({"/doctor": {"findings": [FINDING], "repaired": []}})
    assert code == 1
    assert text == "job 7 holds 0 places (I1, graph-jobs)\n  the sweep mends it\n1 difference\n"


def test_what_was_repaired_is_said_and_is_no_failure() -> None:
    code, text = asked({"/doctor/repair": {"findings": [], "repaired": [FINDING]}}, repair=True)
    assert (code, text.splitlines()[0]) == (0, "repaired: job 7 holds 0 places")


def test_json_is_what_the_queue_said() -> None:
    code, text = asked({"/doctor": {"findings": [FINDING], "repaired": []}}, as_json=True)
    assert (code, json.loads(text)["findings"]) == (1, [FINDING])


def test_replicas_are_asked_until_one_leads() -> None:
    standby = ApiRefused(503, "", "this replica does not lead")
    assert asked({"/a/doctor": standby, "/b/doctor": {"findings": [], "repaired": []}}, ("/a", "/b"))[0] == 0
    with pytest.raises(ClusterError, match="no replica of the queue leads"):
        asked({"/a/doctor": standby}, ("/a",))


def test_the_roll_call_says_of_each_replica_what_it_does_and_what_is_away() -> None:
    first, second, third = (f"/api/v1/namespaces/system/pods/queue-{each}:8080/proxy" for each in "abc")
    away = json.dumps({"ready": False, "role": "leader", "missing": {"fluxion": "Fluxion does not answer"}}).encode()
    answers: dict[str, object] = {
        f"{first}/readyz": {"ready": True, "role": "follower", "missing": {}},
        f"{second}/readyz": ApiRefused(503, "", "HTTP 503", away),
        f"{third}/readyz": ApiRefused(503, "ServiceUnavailable", "connection refused", b"{}"),
    }
    out = io.StringIO()
    roll_call(Queue(_Answers(answers), (first, second, third)), out)  # type: ignore[arg-type]  # two methods are used
    assert out.getvalue().splitlines() == [
        "Queue queue-a: follower, ready",
        "Queue queue-b: leader, not ready",
        "  fluxion: Fluxion does not answer",
        "Queue queue-c: does not answer (Error from server (ServiceUnavailable): connection refused)",
    ]
