"""AppWrappers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from support.builders import PodBuilder
from support.gang_builders import gather, pod_builder, pods_of

from fluxqueue.api.fluxjobs import Reason
from fluxqueue.queue.model.groups import GroupKey, group_of
from fluxqueue.queue.model.sources.appwrappers import APP_WRAPPERS
from fluxqueue.queue.model.sources.gang_sources import InvalidGang


def member(name: str) -> PodBuilder:
    return pod_builder(name, {"workload.codeflare.dev/appwrapper": "wrapped"})


def wrapper(components: list[Any], status: dict[str, Any] | None = None, **spec: Any) -> Any:
    assert APP_WRAPPERS.resource is not None
    document = {
        "metadata": {"name": "wrapped"},
        "spec": {"components": components, **spec},
        "status": status or {},
    }
    return msgspec.convert(document, APP_WRAPPERS.resource.struct)


def test_what_is_wrapped_belongs_to_the_wrapper() -> None:
    assert group_of(pods_of(member("a"))[0]) == GroupKey("default", "wrapped", "AppWrapper", "appwrapper")


def test_a_component_that_is_a_gang_by_itself_starts_as_such() -> None:
    (pod,) = pods_of(member("a").owned_by("PyTorchJob", "mnist", api_version="kubeflow.org/v1"))
    assert group_of(pod) == GroupKey("default", "mnist", "PyTorchJob", "pytorchjob")
    owner = wrapper(
        [{"podSets": [{"replicas": 4}], "template": {"kind": "PyTorchJob"}}, {"podSets": [{"replicas": 2}]}]
    )
    assert APP_WRAPPERS.read((), owner).pods == 2


def test_the_pods_of_all_components_start_together() -> None:
    owner = wrapper(
        [{"podSets": [{"replicas": 1, "path": "a"}, {"path": "b"}]}, {"podSets": [{"replicas": 1}]}, {}]
    )
    part, whole = (gather(APP_WRAPPERS, pods_of(*map(member, names)), owner) for names in ("ab", "abc"))
    assert part is not None
    assert whole is not None
    assert (part.reason, whole.reason, whole.size) == (Reason.WAITING_FOR_GROUP, Reason.NONE, 3)


def test_what_the_controller_found_counts_where_the_user_wrote_nothing() -> None:
    owner = wrapper(
        [{"template": {}}, {"template": {}}], {"componentStatus": [{"podSets": [{"replicas": 2}]}, {}]}
    )
    assert APP_WRAPPERS.read((), owner).pods == 2


@pytest.mark.parametrize(
    ("components", "said"),
    [
        pytest.param([{}], "neither spec.components nor status.componentStatus says", id="nothing"),
        pytest.param(
            [{"podSets": [{"replicas": -1}]}],
            r"spec.components\[0\].podSets\[0\].replicas is -1",
            id="negative",
        ),
        pytest.param(
            [{"podSets": [{"replicas": 19_999}, {"replicas": 19_999}]}], "asks for 39998 pods", id="absurd"
        ),
    ],
)
def test_nonsense_is_one_sentence(components: list[Any], said: str) -> None:
    with pytest.raises(InvalidGang, match=said):
        APP_WRAPPERS.read((), wrapper(components))


def test_a_suspended_wrapper_creates_no_pods() -> None:
    assert not APP_WRAPPERS.read((), wrapper([{"podSets": [{"replicas": 1}]}], suspend=True)).active
