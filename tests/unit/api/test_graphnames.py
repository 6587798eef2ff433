import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluxqueue.api.graphnames import label_property, resource_name, resource_type, taint_property, taints_in
from fluxqueue.api.nodes import Taint


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cpu", "cpu"),
        ("memory", "memory"),
        ("pods", "pods"),
        ("nvidia.com/gpu", "nvidia.com:gpu"),
        ("amd.com/gpu", "amd.com:gpu"),
        ("gpu.intel.com/xe", "gpu.intel.com:xe"),
        ("nvidia.com/mig-1g.5gb", "nvidia.com:mig-1g.5gb"),
        ("example.com/fpga", "example.com:fpga"),
        ("hugepages-2Mi", "hugepages-2Mi"),
        ("ephemeral-storage", "ephemeral-storage"),
    ],
)
def test_resources_have_a_type_each(name: str, kind: str) -> None:
    assert resource_type(name) == kind


@given(st.from_regex(r"[a-z][a-z0-9.-]{0,30}/[A-Za-z0-9._-]{1,30}", fullmatch=True))
def test_no_two_resources_share_a_type_and_none_breaks_a_path(name: str) -> None:
    assert "/" not in resource_type(name)
    assert resource_name(resource_type(name)) == name


def test_labels_and_taints_are_properties_that_cannot_be_taken_for_each_other() -> None:
    assert label_property("disk", "ssd") == "disk=ssd"
    assert taint_property(Taint(key="gpu", value="yes", effect="NoSchedule")) == "taint:gpu=yes:NoSchedule"
    assert taint_property(Taint(key="gpu", effect="NoExecute")) == "taint:gpu=:NoExecute"


def test_the_taints_of_a_node_are_read_from_its_properties() -> None:
    taints = [
        Taint(key="example.com/gpu", value="yes", effect="NoSchedule"),
        Taint(key="gpu", effect="NoExecute"),
    ]
    assert taints_in(["gpu", "gpu=yes", "taint=", *map(taint_property, taints)]) == taints
