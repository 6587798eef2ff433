from __future__ import annotations

import pytest
from cluster.profiles import AREAS, area_shares, stacks

TRACES = """File: kube-apiserver
Type: cpu
Duration: 5s, Total samples = 40ms ( 0.8%)
-----------+-------------------------------------------------------
      30ms   k8s.io/apimachinery/pkg/runtime.(*unstructuredConverter).ToUnstructured
             k8s.io/apiserver/pkg/admission/plugin/policy/validating.(*dispatcher).Dispatch
             k8s.io/apiserver/pkg/endpoints/handlers.createHandler.func1
-----------+-------------------------------------------------------
      10ms   runtime.scanobject
             runtime.gcBgMarkWorker
-----------+-------------------------------------------------------
"""


def test_stacks_have_their_time_and_their_functions() -> None:
    found = list(stacks(TRACES))
    assert [spent for spent, _ in found] == [30.0, 10.0]
    assert found[1][1] == ["runtime.scanobject", "runtime.gcBgMarkWorker"]


def test_an_area_has_the_part_of_the_time_of_its_stacks() -> None:
    shares = area_shares(TRACES)
    assert shares["seconds"] == pytest.approx(0.04)
    assert shares["admission policies"] == pytest.approx(0.75)
    assert shares["garbage collection"] == pytest.approx(0.25)
    assert shares["webhooks"] == 0.0
    assert set(shares) == {"seconds", *AREAS}


def test_a_profile_without_samples_has_no_shares() -> None:
    assert set(area_shares("File: x\n").values()) == {0.0}
