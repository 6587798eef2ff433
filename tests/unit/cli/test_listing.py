import json

import pytest
from support.plugin_server import PluginServer

from fluxqueue.api import names
from fluxqueue.cli.api_client import ApiRefused, ClusterError, NoSuchResource
from fluxqueue.cli.listing import rendered, require_installed

SPEC = {"text": 'a "b"\n c', "list": [1, {}]}
ITEMS = [
    json.dumps({"kind": "FluxJob", "metadata": {"name": name, "managedFields": [1]}, "spec": SPEC}).encode()
    for name in ("one", "two")
]
FLUXJOBS = f"/apis/{names.API_VERSION}/namespaces/default/{names.FLUXJOBS}"


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_list_is_one_json_document_as_kubectl_indents_it(count: int) -> None:
    text = rendered(ITEMS[:count], "json", names.FLUXJOBS, alone=False)
    document = json.loads(text)
    assert [item["metadata"] for item in document["items"]] == [{"name": "one"}, {"name": "two"}][:count]
    assert text == json.dumps(document, indent=4) + "\n"


def test_one_object_is_no_list() -> None:
    assert json.loads(rendered(ITEMS[:1], "json", names.FLUXJOBS, alone=True))["kind"] == "FluxJob"
    assert rendered(ITEMS, "name", names.FLUXJOBS, alone=False).splitlines() == [
        f"fluxjob.{names.GROUP}/{name}" for name in ("one", "two")
    ]


def test_where_fluxjobs_are_not_served_fluxqueue_is_not_installed() -> None:
    server = PluginServer().has(FLUXJOBS)
    require_installed(server.client, "default")
    server.refusals[f"GET {FLUXJOBS}"] = ApiRefused(403, "Forbidden", "no")
    require_installed(server.client, "default")
    with pytest.raises(ClusterError, match="is fluxqueue installed in this cluster"):
        require_installed(_Without().client, "default")


class _Without(PluginServer):
    def get(self, *_: object, **__: object) -> bytes:
        raise NoSuchResource(404, "NotFound", "the server could not find the requested resource")
