"""What the jobs of Kubeflow have in common."""

from __future__ import annotations

from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.queue.model.sources.kubeflow_fields import RunPolicy, is_active


def test_a_suspended_or_deleted_job_creates_no_pods() -> None:
    assert is_active(ObjectMeta(), RunPolicy())
    assert not is_active(ObjectMeta(), RunPolicy(suspend=True))
    assert not is_active(ObjectMeta(deletion_timestamp="2026-01-01T00:00:00Z"), RunPolicy())
