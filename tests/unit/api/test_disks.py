from typing import Any

import pytest
from support.builders import make_pod
from support.queue_builders import a_pod

from fluxqueue.api.disks import conflicting_disk
from fluxqueue.api.pods import PodSpec


def using(**disk: Any) -> PodSpec:
    return a_pod(make_pod().with_("spec.volumes", [{"name": "data", **disk}])).spec


RBD = {"monitors": ["a", "b"], "pool": "rbd", "image": "x"}


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        (
            {"gcePersistentDisk": {"pdName": "d"}},
            {"gcePersistentDisk": {"pdName": "d", "readOnly": True}},
            True,
        ),
        (
            {"gcePersistentDisk": {"pdName": "d", "readOnly": True}},
            {"gcePersistentDisk": {"pdName": "d", "readOnly": True}},
            False,
        ),
        ({"gcePersistentDisk": {"pdName": "d"}}, {"gcePersistentDisk": {"pdName": "e"}}, False),
        (
            {"awsElasticBlockStore": {"volumeID": "v", "readOnly": True}},
            {"awsElasticBlockStore": {"volumeID": "v", "readOnly": True}},
            True,
        ),
        ({"iscsi": {"iqn": "i"}}, {"iscsi": {"iqn": "i"}}, True),
        ({"rbd": RBD}, {"rbd": {**RBD, "monitors": ["b"]}}, True),
        ({"rbd": RBD}, {"rbd": {**RBD, "monitors": ["c"]}}, False),
        ({"rbd": RBD}, {"iscsi": {"iqn": "x"}}, False),
        ({"emptyDir": {}}, {"emptyDir": {}}, False),
    ],
)
def test_two_pods_of_a_node_share_a_disk_only_to_read_it(
    one: dict[str, Any], other: dict[str, Any], shared: bool
) -> None:
    assert conflicting_disk(using(**one), [using(**other)]) == ("data" if shared else "")
