from dataclasses import replace
from datetime import UTC, datetime

import pytest

from fluxqueue.local.kubelet.pod_status import ContainerRecord, Ended, Running, Waiting, pod_phase, pod_status
from fluxqueue.local.kubelet.specs import Container, PodObject, PodSpec

NOW = datetime(2026, 11, 26, 20, 0, tzinfo=UTC)
RUNNING = Running(NOW)


def ended(code: int) -> Ended:
    return Ended(code, "Error" if code else "Completed", NOW, NOW)


def record(state: Waiting | Running | Ended, **fields: object) -> ContainerRecord:
    return replace(ContainerRecord(Container(name="main", image="x"), state), **fields)  # type: ignore[arg-type]


def pod(policy: str = "Never") -> PodObject:
    return PodObject(spec=PodSpec(restart_policy=policy))


@pytest.mark.parametrize(
    ("policy", "states", "phase"),
    [
        ("Never", [Waiting("ContainerCreating")], "Pending"),
        ("Never", [RUNNING], "Running"),
        ("Never", [RUNNING, Waiting("ContainerCreating")], "Pending"),
        ("Never", [RUNNING, ended(1)], "Running"),
        ("Never", [ended(0), ended(0)], "Succeeded"),
        ("Never", [ended(0), ended(1)], "Failed"),
        ("OnFailure", [ended(0)], "Succeeded"),
        ("OnFailure", [ended(1)], "Running"),
        ("Always", [ended(0)], "Running"),
    ],
)
def test_the_phase_follows_from_the_containers(
    policy: str, states: list[Waiting | Running | Ended], phase: str
) -> None:
    assert pod_phase(pod(policy), [], [record(state) for state in states], over=False) == phase


def test_a_container_in_back_off_has_run() -> None:
    assert (
        pod_phase(pod("Always"), [], [record(Waiting("CrashLoopBackOff"), last=ended(1))], over=False)
        == "Running"
    )


def test_a_failed_init_container_fails_its_pod_unless_it_starts_again() -> None:
    waiting = [record(Waiting("PodInitializing"))]
    assert pod_phase(pod("Never"), [record(ended(1))], waiting, over=False) == "Failed"
    assert pod_phase(pod("OnFailure"), [record(ended(1))], waiting, over=False) == "Pending"


@pytest.mark.parametrize(("code", "phase"), [(0, "Succeeded"), (143, "Failed")])
def test_a_stopped_service_ends_by_its_exit_codes(code: int, phase: str) -> None:
    assert pod_phase(pod("Always"), [], [record(ended(code))], over=True) == phase


def test_conditions_keep_the_times_of_their_last_change() -> None:
    before = {"Initialized": (True, "2026-11-26T19:00:00Z"), "Ready": (False, "2026-11-26T19:00:00Z")}
    status = pod_status(
        pod(),
        [],
        [record(RUNNING, ready=True)],
        pod_ip="127.64.1.1",
        host_ip="127.64.0.1",
        started=NOW,
        over=False,
        before=before,
        now=NOW,
    )
    times = {each["type"]: (each["status"], each["lastTransitionTime"]) for each in status["conditions"]}
    assert times["Initialized"] == ("True", "2026-11-26T19:00:00Z")
    assert times["Ready"] == ("True", "2026-11-26T20:00:00Z")
    assert (status["phase"], status["podIP"]) == ("Running", "127.64.1.1")


def test_an_end_has_its_message_and_code() -> None:
    end = replace(ended(3), message="why")
    status = pod_status(
        pod(), [], [record(end)], pod_ip="", host_ip="h", started=NOW, over=True, before={}, now=NOW
    )
    terminated = status["containerStatuses"][0]["state"]["terminated"]
    assert (terminated["exitCode"], terminated["reason"], terminated["message"]) == (3, "Error", "why")
    assert "podIP" not in status
