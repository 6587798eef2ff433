from __future__ import annotations

import ast
import re
from pathlib import Path

from reference_changes import Subscription, changes_page, subscriptions_in

QUEUE = Path(__file__).parents[3] / "queue"


def test_each_call_that_subscribes_is_a_row_of_what_changes() -> None:
    code = '''
class Part:
    """Follows pods. It does more."""

    def __init__(self, caches, ledger):
        for store in (caches.nodes, caches.storage.csi_nodes):
            store.add_handler(lambda _change: ledger.soon())
        ledger.subscribe(self._changed)

    def _changed(self, workload):
        """Forget a workload."""
'''
    follows = "Follows pods. It does more."
    assert subscriptions_in(ast.parse(code), "room/part") == [
        Subscription("nodes", "room/part", "Part", "ledger.soon()", follows),
        Subscription("csi_nodes", "room/part", "Part", "ledger.soon()", follows),
        Subscription("ledger", "room/part", "Part", "_changed", "Forget a workload."),
    ]


def test_no_module_that_subscribes_is_missing_on_the_page() -> None:
    page = changes_page()
    subscribing = [
        path for path in QUEUE.rglob("*.py") if re.search(r"\.(add_handler|subscribe)\(", path.read_text())
    ]
    assert len(subscribing) > 20
    for path in subscribing:
        assert f"`{path.relative_to(QUEUE)}`" in page
