import json
from typing import Any, cast

import pytest

from fluxqueue.cli.uninstall.permissions import PermissionMissing, PermissionNeed, check_permissions
from fluxqueue.kube.kinds import DEPLOYMENTS, JOBS
from fluxqueue.kube.transport import Api


class Reviewer:
    """An API server that allows everything but some verbs."""

    def __init__(self, *refused: str) -> None:
        self.refused = refused
        self.asked: list[dict[str, str]] = []

    async def request(self, method: str, path: str, *, body: dict[str, Any]) -> bytes:
        attributes = body["spec"]["resourceAttributes"]
        self.asked.append(attributes)
        return json.dumps({"status": {"allowed": attributes["verb"] not in self.refused}}).encode()


NEEDS = [
    PermissionNeed(JOBS, ("list", "patch")),
    PermissionNeed(DEPLOYMENTS, ("delete",), "fluxqueue-system"),
]


async def test_each_verb_is_asked_for_where_it_is_needed() -> None:
    server = Reviewer()
    await check_permissions(cast("Api", server), NEEDS)
    assert {
        "verb": "delete",
        "group": "apps",
        "resource": "deployments",
        "namespace": "fluxqueue-system",
    } in server.asked
    assert {"verb": "patch", "group": "batch", "resource": "jobs", "namespace": ""} in server.asked
    assert len(server.asked) == 3


async def test_all_that_is_missing_is_one_sentence() -> None:
    with pytest.raises(PermissionMissing) as caught:
        await check_permissions(cast("Api", Reviewer("patch", "delete")), NEEDS)
    assert str(caught.value) == (
        "you may not patch jobs in all namespaces or delete deployments in namespace fluxqueue-system: "
        "nothing was changed; "
        "ask an administrator of the cluster"
    )
