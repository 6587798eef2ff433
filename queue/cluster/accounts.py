"""Keeps the tree of FluxAccounts, and puts it together again when one of them changes."""

from __future__ import annotations

from fluxqueue.api.fluxaccounts import FluxAccount
from fluxqueue.kube.object_cache import Change, ObjectCache
from fluxqueue.queue.model.accounts import AccountTree, account_tree

__all__ = ["ClusterAccounts"]


class ClusterAccounts:
    """The accounts of a cluster."""

    def __init__(self, fluxaccounts: ObjectCache[FluxAccount]) -> None:
        self._fluxaccounts = fluxaccounts
        self._tree: AccountTree | None = None
        fluxaccounts.add_handler(self._changed)

    @property
    def tree(self) -> AccountTree:
        """The accounts as they are now."""
        if self._tree is None:
            self._tree = account_tree(self._fluxaccounts.list())
        return self._tree

    def _changed(self, change: Change[FluxAccount]) -> None:
        """Forget the tree, unless only a status was written."""
        if change.old is None or change.new is None or change.old.spec != change.new.spec:
            self._tree = None
