"""The way to the REST service of a MiniCluster:
its Service, and the token in its Secret, read with the person's own rights.
"""

from __future__ import annotations

from fluxqueue.client.errors import NoSuchWork, NotPermitted, translated
from fluxqueue.client.flux_connections import DirectFlux, FluxConnection, ProxiedFlux
from fluxqueue.kube.errors import ApiError, Forbidden, NotFound
from fluxqueue.kube.kinds import MINICLUSTERS, SECRETS, SERVICES
from fluxqueue.kube.transport import Api
from fluxqueue.minicluster.naming import Identity

__all__ = ["flux_connection"]

_TOKEN = "token"  # noqa: S105  the key of a Secret


async def flux_connection(api: Api, namespace: str, name: str, url: str = "") -> FluxConnection:
    """Return a connection to the instance of a MiniCluster.

    Parameters
    ----------
    api
        The API server.
    namespace, name
        The MiniCluster.
    url
        Where its service is reached; empty: through the API server.

    Raises
    ------
    NoSuchWork
        There is no such MiniCluster, or it does not serve the interface.
    NotPermitted
        Its token may not be read.
    """
    title = f"MiniCluster {namespace}/{name}"
    try:
        found = await api.get(MINICLUSTERS, name, namespace)
    except NotFound:
        raise NoSuchWork(f"{title} does not exist: check name and namespace") from None
    except ApiError as error:
        raise translated(error) from None
    if not found.spec.serves_rest:
        raise NoSuchWork(
            f"{title} does not serve its REST interface: set spec.restful.enabled to true, "
            "and submit it again"
        )
    identity = Identity(name=name, namespace=namespace, uid=found.metadata.uid)
    secret = found.spec.restful.token_secret or identity.token
    try:
        token = (await api.get(SECRETS, secret, namespace)).data or {}
    except NotFound:
        raise NoSuchWork(f"{title} has no token yet (Secret {secret}): wait until it runs") from None
    except Forbidden as error:
        raise NotPermitted(
            f"{error}: the token of {title} is there, so ask for the right to get this Secret"
        ) from None
    except ApiError as error:
        raise translated(error) from None
    if not (key := token.get(_TOKEN, b"").decode().strip()):
        raise NoSuchWork(f"{title}: Secret {secret} has no key {_TOKEN}: add it")
    if url:
        return DirectFlux(url, key)
    return ProxiedFlux(
        api,
        SERVICES.path(namespace, f"http:{identity.rest}:{found.spec.restful.port}").replace("%3A", ":"),
        key,
    )
