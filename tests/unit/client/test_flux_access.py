from __future__ import annotations

import base64
from typing import Any

import pytest
from support.watched_api import WatchedApi

from fluxqueue.client import NoSuchWork, NotPermitted
from fluxqueue.client.flux_access import flux_connection
from fluxqueue.client.flux_connections import DirectFlux, ProxiedFlux
from fluxqueue.minicluster.naming import Identity


def server(spec: dict[str, Any] | None = None, token: str | None = "abc") -> WatchedApi:
    server = WatchedApi()
    content = {"containers": [{"image": "i"}], "size": 2, **(spec or {})}
    server.put(
        "miniclusters", {"metadata": {"name": "flux", "namespace": "team", "uid": "u"}, "spec": content}
    )
    if token is not None:
        name = Identity(name="flux", namespace="team", uid="u").token
        server.put(
            "secrets",
            {
                "metadata": {"name": name, "namespace": "team"},
                "data": {"token": base64.b64encode(token.encode()).decode()},
            },
        )
    return server


async def test_it_is_reached_through_the_api_server_unless_an_address_is_given() -> None:
    proxied = await flux_connection(server().api, "team", "flux")
    assert isinstance(proxied, ProxiedFlux)
    assert proxied._path == "/api/v1/namespaces/team/services/http:flux-rest:5000/proxy"
    assert proxied._headers == {"Fluxqueue-Token": "abc"}
    direct = await flux_connection(
        server({"restful": {"port": 6000}}).api, "team", "flux", "http://127.0.0.1:6000/"
    )
    assert isinstance(direct, DirectFlux)
    await direct.close()


async def test_a_token_of_the_spec_is_used() -> None:
    own = server({"restful": {"tokenSecret": "mine"}}, token=None)
    own.put(
        "secrets",
        {
            "metadata": {"name": "mine", "namespace": "team"},
            "data": {"token": base64.b64encode(b"x\n").decode()},
        },
    )
    connection = await flux_connection(own.api, "team", "flux")
    assert isinstance(connection, ProxiedFlux)
    assert connection._headers == {"Fluxqueue-Token": "x"}


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        (WatchedApi(), "does not exist"),
        (server({"restful": {"enabled": False}}), "set spec.restful.enabled to true"),
        (server(token=None), "has no token yet"),
        (server(token=""), "has no key token"),
    ],
)
async def test_what_is_missing_is_named_with_the_remedy(made: WatchedApi, sentence: str) -> None:
    with pytest.raises(NoSuchWork, match=sentence):
        await flux_connection(made.api, "team", "flux")


async def test_whoever_may_not_read_the_token_is_told_so() -> None:
    refusing = server()
    refusing.fail_next("get", "secrets", 403, "Forbidden", "secrets is forbidden")
    with pytest.raises(NotPermitted, match="ask for the right to get this Secret"):
        await flux_connection(refusing.api, "team", "flux")
