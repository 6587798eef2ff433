import pytest
from support.builders import make_queue
from support.plugin_server import PluginServer

from fluxqueue.api import names
from fluxqueue.cli.api_client import ApiRefused, ClusterError
from fluxqueue.cli.queue_names import require_queue

QUEUES = f"/apis/{names.API_VERSION}/fluxqueues"


@pytest.fixture
def server() -> PluginServer:
    return PluginServer().has(QUEUES, make_queue("night"), make_queue("gpu"))


def test_a_queue_that_does_not_exist_is_refused_with_those_that_do(server: PluginServer) -> None:
    with pytest.raises(
        ClusterError,
        match=r"^error: there is no queue 'nigth': did you mean night\? there are default, gpu, night$",
    ):
        require_queue(server.client, "nigth")
    with pytest.raises(ClusterError, match="^error: there is no queue 'x': there are default, gpu, night$"):
        require_queue(server.client, "x")


def test_a_queue_that_exists_and_the_default_one_are_taken(server: PluginServer) -> None:
    require_queue(server.client, "night")
    require_queue(PluginServer().client, "default")


def test_a_person_who_may_not_read_queues_is_not_checked(server: PluginServer) -> None:
    server.refusals[QUEUES] = ApiRefused(403, "Forbidden", "cannot list")
    require_queue(server.client, "nigth")


def test_an_empty_name_is_refused(server: PluginServer) -> None:
    with pytest.raises(ClusterError, match="is empty"):
        require_queue(server.client, "")
