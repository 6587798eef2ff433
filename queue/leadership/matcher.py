"""The matcher of an installation: the project's own service,
or a foreign one behind a graph of the queue's own.
"""

from __future__ import annotations

from fluxqueue.fluxion.foreign.fluxion import ForeignFluxion
from fluxqueue.fluxion.foreign.units import ForeignUnits
from fluxqueue.fluxion.rpc.client import AsyncFluxionClient
from fluxqueue.fluxion.rpc.interface import Fluxion
from fluxqueue.queue.config import Matcher
from fluxqueue.queue.settings import ServiceSettings

__all__ = ["connect_matcher"]


def connect_matcher(settings: ServiceSettings) -> Fluxion:
    """Return the matcher that the configuration names; a connection is made with the first call."""
    config, client = settings.config, AsyncFluxionClient(settings.fluxion)
    match config.matcher:
        case Matcher.OWN:
            return client
        case Matcher.FOREIGN:
            units = ForeignUnits(config.foreign.cpu_vertex_millicores, config.foreign.memory_vertex_mi_b)
            return ForeignFluxion(client, config.policy, units)
