"""The settings that differ between clusters."""

from __future__ import annotations

from typing import Any

import pytest
from support.minicluster_builders import minicluster

from fluxqueue.minicluster.injection_settings import identity_of
from fluxqueue.minicluster.scripts import files


def settings(**spec: Any) -> dict[str, str]:
    cluster = minicluster(**spec)
    text = files(identity_of(cluster), cluster.spec, 0, argv_from_pod=False, cluster_domain="cluster.local")[
        "settings.sh"
    ]
    return {name: value.strip("'") for name, _, value in (line.partition("=") for line in text.splitlines())}


@pytest.mark.parametrize(("limit_s", "patience"), [(1, "60"), (300, "300")])
def test_followers_wait_longer_than_a_resolver_remembers_that_there_is_no_such_name(
    limit_s: int, patience: str
) -> None:
    written = settings(formTimeoutSeconds=limit_s)
    assert (written["fq_patience"], written["fq_names_s"]) == (patience, "30")


@pytest.mark.parametrize(
    ("grace_s", "work", "ending"),
    [(30, "20", "8"), (11, "1", "8"), (10, "0", "8"), (5, "0", "3"), (1, "0", "1")],
)
def test_a_pod_ends_itself_before_the_kubelet_does(grace_s: int, work: str, ending: str) -> None:
    written = settings(podTemplate={"spec": {"terminationGracePeriodSeconds": grace_s}})
    assert (written["fq_grace"], written["fq_ending_s"]) == (work, ending)
