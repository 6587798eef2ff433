import io

import pytest
from support.plugin_server import PluginServer

from fluxqueue.api import names
from fluxqueue.api.fluxqueues import QueueState
from fluxqueue.cli.api_client import ApiRefused, ClusterError, NoSuchResource, ObjectNotFound
from fluxqueue.cli.queue_edits import create_queue, queue_manifest, set_state

PATH = f"/apis/{names.API_VERSION}/{names.FLUXQUEUES}"


@pytest.fixture
def server() -> PluginServer:
    server = PluginServer()
    server.objects[f"{PATH}/night"] = {"metadata": {"name": "night"}, "spec": {"state": "open"}}
    server.refusals["/default"] = ObjectNotFound(404, "NotFound", 'fluxqueues "default" not found')
    return server


def said(server: PluginServer, state: QueueState, *queues: str) -> str:
    out = io.StringIO()
    set_state(server.client, queues, state, out)
    return out.getvalue()


def test_a_state_is_one_patch_and_none_if_it_is_there(server: PluginServer) -> None:
    assert said(server, QueueState.HELD, "night") == "queue night is held: it accepts work and starts none\n"
    assert server.written == [("PATCH", f"{PATH}/night", {"spec": {"state": "held"}})]
    assert said(server, QueueState.OPEN, "night") == "queue night is open (no change)\n"
    assert len(server.written) == 1


def test_the_default_queue_needs_no_object_until_it_is_closed(server: PluginServer) -> None:
    assert said(server, QueueState.OPEN, "default") == "queue default is open (no change)\n"
    assert server.written == []
    said(server, QueueState.DRAINED, "default")
    assert server.written[0][2] == queue_manifest("default", {"state": "drained"})


def test_one_queue_that_is_not_there_does_not_keep_the_others(server: PluginServer) -> None:
    server.refusals["/nowhere"] = ObjectNotFound(404, "NotFound", 'fluxqueues "nowhere" not found')
    with pytest.raises(ClusterError, match='"nowhere" not found'):
        said(server, QueueState.HELD, "nowhere", "night")
    assert [path for _, path, _ in server.written] == [f"{PATH}/night"]


@pytest.mark.parametrize(
    ("refusal", "message"),
    [
        (
            ApiRefused(403, "Forbidden", 'User "u" cannot create resource'),
            "you may not change queues; an administrator gives",
        ),
        (NoSuchResource(404, "NotFound", "x"), "is fluxqueue installed in this cluster"),
        (ApiRefused(403, "Forbidden", "denied the request: spec.policy"), "denied the request: spec.policy"),
    ],
)
def test_a_refusal_is_a_sentence_with_the_remedy(
    refusal: ApiRefused, message: str, server: PluginServer
) -> None:
    server.refusals[names.FLUXQUEUES] = refusal
    with pytest.raises(ClusterError, match=message):
        create_queue(server.client, queue_manifest("a", {}), io.StringIO())
