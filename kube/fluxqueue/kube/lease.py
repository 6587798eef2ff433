"""Who leads (skeleton: signatures are final, bodies follow)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fluxqueue.kube.transport import Api

__all__ = ["LeaderLease"]


class LeaderLease:
    """A coordination.k8s.io Lease that at most one process holds."""

    def __init__(self, api: Api, namespace: str, name: str, identity: str, duration_s: float = 8.0) -> None:
        raise NotImplementedError

    @property
    def held(self) -> bool:
        """Whether this process may act as leader right now."""
        raise NotImplementedError

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Campaign for ever: whenever the lease is acquired run ``lead``, and cancel it when the lease is lost."""
        raise NotImplementedError
