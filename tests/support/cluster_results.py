"""Results of a comparison of contenders, as ``benchmarks/cluster`` writes them, with made-up figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["comparison", "outcome"]

SERVERS = {
    "kube-apiserver": 10.0,
    "etcd": 2.0,
    "kube-controller-manager": 2.0,
    "kube-scheduler": 1.0,
    "kwok": 50.0,
}


def outcome(
    scenario: str,
    contender: str,
    cpu_s: Mapping[str, float] | None = None,
    *,
    figures: Mapping[str, float] | None = None,
    wait_s: float = 1.0,
    jobs: int = 1_000,
) -> dict[str, Any]:
    """Return one run: Kubernetes takes 15 s of CPU for 1,000 Jobs,
    and ``cpu_s`` adds to it or replaces one of its programs.
    """
    return {
        "scenario": scenario,
        "contender": contender,
        "key": contender,
        "round": 0,
        "commit": "abc",
        "jobs": jobs,
        "lasted_s": 50.0,
        "figures": dict(figures or {}),
        "wait_quantiles_s": [wait_s * percent / 50 for percent in range(101)] if jobs else [],
        "cpu_s": {**SERVERS, **(cpu_s or {})},
        "writes": {"POST jobs": jobs, "POST pods": jobs, "PUT jobs/status": 2 * jobs},
        "events": 2 * jobs,
        "others_cpu_s": 0.5,
        "stolen_s": 1.0,
        "pss_mib": {"kube-apiserver": 300.0, "queue": 100.0},
        "profile": {},
    }


def comparison(*outcomes: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return the document of these runs."""
    return {
        "at": "2026-11-22T10:00:00+00:00",
        "machine": {"cpu": "Some CPU", "cpus": 2, "kernel": "6.1", "python": "3.11.7"},
        "versions": {"Kubernetes": "v1.36.3", "Kueue": "v0.19.2"},
        "scale": 1.0,
        "outcomes": list(outcomes),
        "failures": [],
        **fields,
    }
