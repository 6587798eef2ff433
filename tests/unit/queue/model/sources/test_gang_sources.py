"""Numbers and names as other projects write them."""

from __future__ import annotations

import pytest

from fluxqueue.queue.model.sources.gang_sources import (
    Gang,
    InvalidGang,
    Role,
    api_group,
    limited,
    named,
    whole_number,
)


def test_the_core_group_has_no_name() -> None:
    assert (api_group("v1"), api_group("kubeflow.org/v2beta1")) == ("", "kubeflow.org")


def test_a_name_that_no_object_can_have_is_none() -> None:
    assert [named(text) for text in (None, "", "x" * 254, "x")] == [None, None, None, "x"]


@pytest.mark.parametrize("value", [-1, 0, 100_001, 2**63])
def test_a_number_outside_the_limits_names_its_field(value: int) -> None:
    with pytest.raises(InvalidGang, match=f"spec.replicas is {value}: write a whole number from 1 to 20000"):
        whole_number(value, "spec.replicas")


def test_a_missing_number_is_its_default_or_said() -> None:
    assert whole_number(None, "spec.replicas", default=1) == 1
    with pytest.raises(InvalidGang, match=r"spec\.replicas is missing"):
        whole_number(None, "spec.replicas")


def test_the_last_roles_give_way_to_a_smaller_minimum() -> None:
    roles = (Role("launcher", 1), Role("worker", 4))
    assert limited(roles, 3, "minAvailable") == (Role("launcher", 1), Role("worker", 2))
    assert limited(roles, 1, "minAvailable") == (Role("launcher", 1),)
    assert limited(roles, None, "minAvailable") == limited(roles, 9, "minAvailable") == roles
    assert Gang(roles).pods == 5


def test_more_pods_than_a_cluster_runs_are_refused() -> None:
    with pytest.raises(InvalidGang, match="asks for 30000 pods: at most 20000"):
        limited((Role("a", 15_000), Role("b", 15_000)), None, "minAvailable")
