import pytest
from support.plugin_server import PluginServer, fluxjob

from fluxqueue.api import names
from fluxqueue.api.metadata import ObjectMeta, PartialObjectMetadata
from fluxqueue.cli.completion_names import read_names

QUEUES = f"/apis/{names.API_VERSION}/{names.FLUXQUEUES}"


def test_workloads_are_called_as_people_call_them_with_their_state() -> None:
    server = PluginServer().has_jobs(
        fluxjob("lammps", state="Pending", reason="Held"), fluxjob("amg", state="Running")
    )
    assert read_names(server.client, "workloads", "default") == [
        "job/lammps\tPending Held",
        "job/amg\tRunning",
    ]
    assert server.asked[0][1] == {"limit": "500"}, "one page"


@pytest.mark.parametrize(
    ("kind", "path"),
    [("queues", QUEUES), ("nodes", "/api/v1/nodes"), ("namespaces", "/api/v1/namespaces")],
)
def test_other_kinds_are_listed_by_name(kind: str, path: str) -> None:
    server = PluginServer().has(path, PartialObjectMetadata(metadata=ObjectMeta(name="a")))
    assert read_names(server.client, kind, "default") == ["a"]
