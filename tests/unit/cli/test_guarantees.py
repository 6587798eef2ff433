"""Which guarantee explain shows: of the nearest account that has one,
and none where accounts may not be read.
"""

from __future__ import annotations

import msgspec
import pytest
from support.builders import make_account

from fluxqueue.api.fluxaccounts import FluxAccount, FluxAccountStatus, GuaranteedStatus
from fluxqueue.api.fluxjobs import FluxJob, FluxJobStatus
from fluxqueue.cli import guarantees
from fluxqueue.cli.api_client import ApiClient, ClusterError

CLIENT = object.__new__(ApiClient)
SHOWN = [GuaranteedStatus("nodes", "2", "3", "1"), GuaranteedStatus("memory", "1 TiB", "1 GiB", "0 B")]


def of(account: str) -> FluxJob:
    return FluxJob(status=FluxJobStatus(account=account))


def test_the_nearest_account_with_a_guarantee_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    site, md = msgspec.convert([make_account("site"), make_account("md", parent="site")], list[FluxAccount])
    site = msgspec.structs.replace(site, status=FluxAccountStatus(guaranteed=SHOWN))
    monkeypatch.setattr(guarantees, "list_accounts", lambda _client: [site, md])
    found = guarantees.guarantees_of(CLIENT, [of("md")])
    assert (
        found(of("md")) == "to 'site': 2 nodes (used 3, borrowed 1), 1 TiB memory (used 1 GiB, borrowed 0 B)"
    )
    assert found(of("")) == ""


def test_whoever_may_not_read_accounts_gets_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_client: ApiClient) -> list[FluxAccount]:
        raise ClusterError("forbidden")

    monkeypatch.setattr(guarantees, "list_accounts", refuse)
    assert guarantees.guarantees_of(CLIENT, [of("md")])(of("md")) == ""
