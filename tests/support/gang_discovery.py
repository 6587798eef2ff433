"""Waits until the queue has noticed CustomResourceDefinitions that a test made:
it looks for them every half minute.
"""

from __future__ import annotations

from collections.abc import Collection

from fluxqueue.local.inprocess import InProcessCluster
from fluxqueue.local.processes import wait_until

__all__ = ["until_followed"]

_WITHIN_S = 120


def until_followed(cluster: InProcessCluster, resources: Collection[str]) -> None:
    """Wait until the queue watches these resources of other projects.

    Parameters
    ----------
    cluster
        With one replica of the queue.
    resources
        As in ``gangs.resources`` of the chart.
    """

    def followed() -> bool:
        lines = [
            line
            for line in cluster.programs["queue"].process.log_text().splitlines()
            if "gang_objects.followed" in line
        ]
        return all(any(f'"{resource}"' in line for line in lines) for resource in resources)

    wait_until(followed, "the queue watches all resources of gangs", _WITHIN_S)
