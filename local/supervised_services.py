"""Postgres and the components of the control plane, as the supervisor of a local cluster sees them."""

from __future__ import annotations

from fluxqueue.local.components import Component
from fluxqueue.local.controlplane import ControlPlane
from fluxqueue.local.postgres import LocalPostgres

__all__ = ["SupervisedComponent", "SupervisedPostgres"]


class SupervisedPostgres:
    """Postgres."""

    name = "postgres"

    def __init__(self, postgres: LocalPostgres) -> None:
        self._postgres = postgres

    def died(self) -> bool:
        """True if it has ended although it should run."""
        return self._postgres.died()

    def revive(self) -> None:
        """Restart it."""
        self._postgres.start()

    def tend(self) -> None:
        """Do nothing: there is nothing to keep up to date."""


class SupervisedComponent:
    """A component of the control plane."""

    def __init__(self, cluster: ControlPlane, component: Component) -> None:
        self._cluster = cluster
        self._component = component
        self.name = component.value

    def died(self) -> bool:
        """True if it has ended although it should run."""
        return self._cluster.died(self._component)

    def revive(self) -> None:
        """Restart it."""
        self._cluster.start_component(self._component)

    def tend(self) -> None:
        """Do nothing: there is nothing to keep up to date."""
