"""By what grants are priced."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, cast

import msgspec
from support.builders import make_node

from fluxqueue.api.nodes import Node
from fluxqueue.fluxion.messages import NodeShare
from fluxqueue.kube.transport import Api
from fluxqueue.queue.cluster.caches import Caches
from fluxqueue.queue.leadership import planning
from fluxqueue.queue.model.prices import PriceEntry, PricesConfig


def test_grants_are_priced_by_the_labels_that_their_nodes_have_then() -> None:
    caches = Caches(cast("Api", None))
    node = make_node("dear").label("gpu", "a100").build()
    caches.nodes.apply(msgspec.convert(node, Node))
    ledger = SimpleNamespace(price=None, wall=lambda: datetime(2026, 11, 1, tzinfo=UTC))
    entries = (
        PriceEntry(match_labels={"gpu": "a100"}, per_hour={"cpu": Decimal(9)}),
        PriceEntry(per_hour={"cpu": Decimal(1)}),
    )
    for prices in (PricesConfig(), PricesConfig(currency="EUR", entries=entries)):
        assert ledger.price is None, "without prices nothing is computed"
        config = SimpleNamespace(prices=prices)
        planning._price_grants(cast("Any", SimpleNamespace(caches=caches, config=config, ledger=ledger)))
    shares = [NodeShare(name, {"default": 1}, {"cpu": 1_000}) for name in ("dear", "unknown")]
    assert [rate.per_hour for rate in ledger.price(shares)] == [Decimal(10)]
