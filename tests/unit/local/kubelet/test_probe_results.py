from fluxqueue.local.kubelet.probe_results import ProbeResults
from fluxqueue.local.kubelet.specs import Probe


def test_a_probe_holds_after_its_thresholds_in_a_row() -> None:
    results = ProbeResults(Probe(success_threshold=2, failure_threshold=3))
    changes = [results.add(passed) for passed in (True, True, True, False, False, True, False, False, False)]
    assert changes == [False, True, False, False, False, False, False, False, True]
    assert results.value is False
