import pytest

from fluxqueue.kube import reflector
from fluxqueue.kube.backoff import exponential_s, jittered_s


@pytest.mark.parametrize(
    ("failures", "delay_s"), [(0, 0.005), (1, 0.01), (4, 0.08), (13, 40.96), (14, 60), (10_000, 60)]
)
def test_exponential_delay_doubles_up_to_its_cap(failures: int, delay_s: float) -> None:
    assert exponential_s(failures, base_s=0.005, cap_s=60) == pytest.approx(delay_s)


@pytest.mark.parametrize("failures", [0, 1, 5, 50])
def test_jitter_stays_between_the_base_and_the_cap(failures: int) -> None:
    lowest = jittered_s(failures, base_s=0.5, cap_s=30, random=lambda: 0.0)
    highest = jittered_s(failures, base_s=0.5, cap_s=30, random=lambda: 1.0)
    assert lowest == 0.5
    assert highest == min(30, 0.5 * 2 ** (failures + 1))


@pytest.mark.parametrize("failures", [0, 3, 50])
def test_a_watch_is_opened_again_within_three_seconds_however_often_it_failed(failures: int) -> None:
    longest = jittered_s(failures, base_s=reflector.BASE_S, cap_s=reflector.CAP_S, random=lambda: 1.0)
    assert longest <= 3.0
