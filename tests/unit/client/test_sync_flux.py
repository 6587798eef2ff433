from __future__ import annotations

from inspect import iscoroutinefunction

from fluxqueue.client import (
    AsyncClient,
    AsyncFlux,
    AsyncFluxTask,
    AsyncWorkload,
    Client,
    Flux,
    FluxTask,
    Workload,
)


def verbs(kind: type) -> set[str]:
    found = {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_")}
    return {name for name, each in found.items() if callable(each)}


def test_both_clients_have_the_same_verbs() -> None:
    assert verbs(AsyncFlux) == verbs(Flux)
    assert verbs(AsyncFluxTask) == verbs(FluxTask)
    assert verbs(AsyncWorkload) == verbs(Workload)
    assert verbs(Client) - verbs(AsyncClient) == {"close"}


def test_no_verb_of_the_sync_client_is_a_coroutine() -> None:
    assert not [
        name
        for kind in (Client, Workload, Flux, FluxTask)
        for name in verbs(kind)
        if iscoroutinefunction(getattr(kind, name))
    ]
