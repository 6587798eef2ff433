"""The engine against recordings of flux-sched."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fluxqueue.fluxion.commands.recorded_cases import EngineTarget, load_cases, replay

PACKED = Path(__file__).parent / "cases.json.gz"
SHARED = Path(__file__).parents[3] / "shared" / "conformance" / "fluxion"


def packed_cases() -> Iterator[dict[str, Any]]:
    packed = json.loads(gzip.decompress(PACKED.read_bytes()))
    for case in packed["cases"]:
        yield {"graph_text": packed["graphs"].get(case.get("graph")), **case}


def test_every_packed_case_is_answered_as_recorded() -> None:
    agreement = replay(packed_cases(), EngineTarget())
    assert agreement.differences == []
    assert agreement.complete
    assert agreement.cases == 438


@pytest.mark.skipif(
    not SHARED.is_dir(), reason="the folder of shared recordings is not beside this repository"
)
def test_every_shared_case_is_answered_as_recorded() -> None:
    agreement = replay(load_cases(SHARED), EngineTarget())
    assert agreement.differences == []
    assert agreement.complete
    assert agreement.cases >= 586


def test_a_wrong_recording_is_noticed() -> None:
    case = next(case for case in packed_cases() if case["id"] == "gen-0001")
    case["commands"][0]["expect"]["vertices"][0][0] = "/cluster0/host7"
    agreement = replay([case], EngineTarget())
    assert not agreement.complete
    assert "gen-0001" in agreement.differences[0]
