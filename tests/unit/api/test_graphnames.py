import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluxqueue.api.graphnames import label_property, resource_type, taint_property
from fluxqueue.api.objects import Taint


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cpu", "cpu"),
        ("memory", "memory"),
        ("pods", "pods"),
        ("nvidia.com/gpu", "gpu"),
        ("amd.com/gpu", "gpu"),
        ("gpu.intel.com/xe", "gpu"),
        ("nvidia.com/mig-1g.5gb", "nvidia_com_mig-1g_5gb"),
        ("example.com/fpga", "example_com_fpga"),
        ("hugepages-2Mi", "hugepages-2Mi"),
        ("ephemeral-storage", "ephemeral-storage"),
    ],
)
def test_resources_have_a_type_each(name: str, kind: str) -> None:
    assert resource_type(name) == kind


@given(st.from_regex(r"[a-z][a-z0-9.-]{0,30}/[A-Za-z0-9._-]{1,30}", fullmatch=True))
def test_every_type_is_one_that_a_jobspec_may_hold(name: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_-]+", resource_type(name))


def test_labels_and_taints_are_properties_that_cannot_be_taken_for_each_other() -> None:
    assert label_property("disk", "ssd") == "disk=ssd"
    assert taint_property(Taint(key="gpu", value="yes", effect="NoSchedule")) == "taint:gpu=yes:NoSchedule"
    assert taint_property(Taint(key="gpu", effect="NoExecute")) == "taint:gpu=:NoExecute"
