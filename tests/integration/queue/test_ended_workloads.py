"""What has ended, from real tables to a collector that speaks OTLP."""

from __future__ import annotations

import pytest
from support.collectors import collector
from support.ended_contract import EndedContract, finish, read
from support.queue_records import Leader

from fluxqueue.queue.model.records import Epoch
from fluxqueue.queue.otlp import OtlpSender
from fluxqueue.queue.store import Store
from fluxqueue.queue.traces import NotExported


@pytest.fixture
def leader(store: Store, epoch: Epoch) -> Leader:
    return Leader(store, epoch)


class TestEndedInPostgres(EndedContract):
    """The same tests as in memory."""


async def test_spans_arrive_at_a_collector(leader: Leader, monkeypatch: pytest.MonkeyPatch) -> None:
    (workload,) = await leader.allocate("a")
    await finish(leader, workload)
    ended = await read(leader)
    with collector() as kept:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", kept.endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20secret")
        sender = OtlpSender()
        sender.send(ended)
        root, *states = sorted(kept.spans, key=lambda span: (span.parent_span_id, span.start_time_unix_nano))
        assert kept.headers["authorization"] == "Bearer secret"
        assert kept.services == {"fluxqueue"}
        assert [root.name, *(span.name for span in states)] == ["Job", "Pending", "Allocated"]
        assert (root.status.message, root.parent_span_id) == ("exit code 3", b"")
        assert {span.parent_span_id for span in states} == {root.span_id}
        assert root.start_time_unix_nano == int(workload.submitted_at.timestamp() * 1_000_000) * 1000
        kept.status = 400
        with pytest.raises(NotExported, match="did not take the traces of 1 workloads"):
            sender.send(ended)
        sender.close()
