"""Dry-run creations at a fixed rate, which the webhook answers as it does real ones,
and what was wrong with the answers.
"""

from __future__ import annotations

import http.client
import threading
import time
from dataclasses import dataclass, field
from types import TracebackType

from support.builders import make_job, make_pod

from fluxqueue.local.apiserver_client import ApiServerClient, ApiServerError

_THREADS = 4


@dataclass
class AdmissionLoad:
    """Creates Jobs and Pods without keeping them, from several threads; a context manager.

    Parameters
    ----------
    client
        Asks as administrator.
    namespace
        A managed namespace.
    per_second
        Requests per second, of all threads together.

    Attributes
    ----------
    took_s
        Duration of each request.
    wrong
        Refused requests, and objects that were not held, as messages.
    """

    client: ApiServerClient
    namespace: str
    per_second: float
    took_s: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._ask, args=(number,), daemon=True) for number in range(_THREADS)
        ]
        self._began = time.monotonic()

    def __enter__(self) -> AdmissionLoad:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(60)

    def summary(self) -> str:
        """Return the number of requests, of wrong answers, and the durations."""
        took = sorted(self.took_s) or [0.0]
        middle, late = took[len(took) // 2] * 1e3, took[int(len(took) * 0.99)] * 1e3
        return (
            f"{len(self.took_s)} admissions, {len(self.wrong)} wrong; ms p50 {middle:.0f}, "
            f"p99 {late:.0f}, max {took[-1] * 1e3:.0f}"
        )

    def _ask(self, number: int) -> None:
        count = 0
        while not self._ended.wait(
            max(0.0, self._began + (count * _THREADS + number) / self.per_second - time.monotonic())
        ):
            began = time.monotonic()
            try:
                held = self._create(count)
                if not held:
                    self.wrong.append("passed without being held")
            except (ApiServerError, OSError, http.client.HTTPException) as error:
                self.wrong.append(f"{began - self._began:.1f} s: {error!r}")
            self.took_s.append(time.monotonic() - began)
            count += 1

    def _create(self, count: int) -> bool:
        where = f"namespaces/{self.namespace}"
        if count % 2:
            pod = make_pod().generated("load-").without("metadata.namespace").cpu("100m").build()
            answer = self.client.request("POST", f"/api/v1/{where}/pods", pod, query={"dryRun": "All"})
            return bool(answer["spec"].get("schedulingGates"))
        job = make_job().generated("load-").without("metadata.namespace").cpu("100m").build()
        return bool(
            self.client.request("POST", f"/apis/batch/v1/{where}/jobs", job, query={"dryRun": "All"})["spec"][
                "suspend"
            ]
        )
