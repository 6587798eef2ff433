"""The values of the local cluster's chart."""

from fluxqueue.local.values import PORTS, cluster_values


def test_the_one_person_of_a_local_cluster_may_order_what_waits() -> None:
    values = cluster_values(dict.fromkeys(PORTS, 1), "stock")
    assert values["defaultQueue"]["spec"]["maxPriority"] == 1000
