"""A FluxQueue whose work preempts and is preempted, for end-to-end tests."""

from __future__ import annotations

import json

from support.builders import JobBuilder, make_job, make_queue
from support.end_to_end import Stage

from fluxqueue.api import names

__all__ = ["FOREVER", "RUN_SECONDS", "PreemptingQueue"]

RUN_SECONDS = "fluxqueue.local/run-seconds"
FOREVER = "forever"


class PreemptingQueue:
    """The queue, which exists once it grants something."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.name = f"preempts-{stage.namespace}"

    def grants(self, **rules: int) -> None:
        """Let work in the queue have this before it is preempted."""
        spec = {"preemption": "lowerPriority", "preemptionRules": rules}
        self._stage.kubectl("apply", "-f", "-", stdin=json.dumps(make_queue(self.name, **spec)))

    def job(self, name: str, nodes: int, priority: int = 0, seconds: str = FOREVER) -> JobBuilder:
        """A Job with a pod on each node; by default it runs until the test ends it."""
        builder = make_job(name).indexed(nodes).cpu("8").label(names.QUEUE_LABEL, self.name)
        return builder.annotation(names.PRIORITY_ANNOTATION, str(priority)).pod_annotation(
            RUN_SECONDS, seconds
        )
