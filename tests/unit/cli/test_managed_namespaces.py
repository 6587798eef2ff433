import pytest
from support.plugin_server import PluginServer

from fluxqueue.api import names
from fluxqueue.cli.api_client import ApiRefused, ObjectNotFound
from fluxqueue.cli.managed_namespaces import why_nothing_waits

NAMESPACE = "/api/v1/namespaces/science"
JOBS = "/apis/batch/v1/namespaces/science/jobs"
NOT_MANAGED = (
    "fluxqueue does not manage namespace science, so nothing in it waits for its turn: "
    "an administrator manages it by: "
    "kubectl label --overwrite namespace science fluxqueue/managed=true"
)


@pytest.mark.parametrize(
    ("labels", "seen", "said"),
    [
        pytest.param({names.MANAGED_LABEL: "true"}, False, "", id="labelled"),
        pytest.param({names.MANAGED_LABEL: "false"}, True, NOT_MANAGED, id="excluded"),
        pytest.param({}, True, "", id="all namespaces are managed"),
        pytest.param({}, False, NOT_MANAGED, id="only labelled ones are"),
    ],
)
def test_a_namespace_that_is_not_managed_is_told_with_the_remedy(
    labels: dict[str, str], seen: bool, said: str
) -> None:
    server = PluginServer()
    server.objects[NAMESPACE] = {"metadata": {"labels": labels}}
    server.objects[f"POST {JOBS}"] = {
        "metadata": {"labels": {names.SEEN_LABEL: names.SEEN_VALUE} if seen else {}}
    }
    assert why_nothing_waits(server.client, "science") == said
    assert all(verb == "POST?dryRun" for verb, _, _ in server.written)


def test_a_namespace_that_does_not_exist_is_told() -> None:
    server = PluginServer()
    server.refusals[NAMESPACE] = ObjectNotFound(404, "NotFound", 'namespaces "science" not found')
    assert why_nothing_waits(server.client, "science").startswith(
        "there is no namespace science: kubectl get namespaces lists them"
    )


def test_nothing_is_said_to_who_may_not_ask() -> None:
    server = PluginServer()
    server.refusals[NAMESPACE] = ApiRefused(403, "Forbidden", "cannot get")
    server.refusals[JOBS] = ApiRefused(403, "Forbidden", "cannot create")
    assert not why_nothing_waits(server.client, "science")
