import pytest

from fluxqueue.local.kubelet.restarts import CrashBackoff, restarts_after
from fluxqueue.local.kubelet.specs import Container, ExitCodes, RestartRule


@pytest.mark.parametrize(
    ("policy", "code", "again"),
    [
        ("Always", 0, True),
        ("Always", 1, True),
        ("OnFailure", 0, False),
        ("OnFailure", 1, True),
        ("Never", 0, False),
        ("Never", 1, False),
    ],
)
def test_the_policy_of_the_pod_decides(policy: str, code: int, again: bool) -> None:
    assert restarts_after(Container(), policy, code) is again


def test_the_policy_of_the_container_comes_first() -> None:
    assert restarts_after(Container(restart_policy="Always"), "Never", 0)
    assert not restarts_after(Container(restart_policy="Never"), "Always", 1)


@pytest.mark.parametrize(
    ("operator", "code", "again"),
    [("In", 42, True), ("In", 1, False), ("NotIn", 42, False), ("NotIn", 1, True)],
)
def test_a_rule_of_the_container_restarts_after_its_exit_codes(operator: str, code: int, again: bool) -> None:
    rule = RestartRule(action="Restart", exit_codes=ExitCodes(operator=operator, values=[42]))
    assert (
        restarts_after(Container(restart_policy="Never", restart_policy_rules=[rule]), "Never", code) is again
    )


def test_delays_double_to_five_minutes_and_begin_again_after_a_long_run() -> None:
    backoff = CrashBackoff()
    assert [backoff.delay_s(1) for _ in range(8)] == [0, 10, 20, 40, 80, 160, 300, 300]
    assert backoff.delay_s(601) == 0
