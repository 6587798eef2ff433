from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path

from cluster.meters import (
    Cost,
    MachineTime,
    Writes,
    idle_share,
    process_cpu_s,
    pss_mib,
    read_machine,
    writes_in,
)

from fluxqueue.local.processes import Process, wait_until

METRICS = """
# HELP apiserver_request_total Counter of apiserver requests.
# TYPE apiserver_request_total counter
apiserver_request_total{code="201",group="batch",resource="jobs",subresource="",verb="POST"} 30
apiserver_request_total{code="409",group="batch",resource="jobs",subresource="status",verb="PUT"} 4
apiserver_request_total{code="200",group="batch",resource="jobs",subresource="status",verb="PUT"} 60
apiserver_request_total{code="200",group="",resource="pods",subresource="",verb="LIST"} 7
apiserver_request_total{code="200",group="coordination.k8s.io",resource="leases",subresource="",verb="PUT"} 99
apiserver_request_total{code="201",group="events.k8s.io",resource="events",subresource="",verb="POST"} 25
apiserver_request_total{code="200",group="",resource="events",subresource="",verb="PATCH"} 1e+01
apiserver_request_total_but_another{code="200",resource="pods",verb="POST"} 5
"""


def test_writes_are_the_successful_ones_of_objects_and_of_events() -> None:
    assert writes_in(METRICS) == Writes(Counter({"POST jobs": 30, "PUT jobs/status": 60}), 35)


def test_a_cost_is_the_difference_of_two_readings() -> None:
    before = Cost({"etcd": 1.0}, Writes(Counter({"POST jobs": 3}), 1), 5.0, 1.0, 100.0)
    after = Cost(
        {"etcd": 1.5, "queue": 2.0}, Writes(Counter({"POST jobs": 5, "POST pods": 1}), 4), 5.5, 3.0, 110.0
    )
    assert after.since(before) == Cost(
        {"etcd": 0.5, "queue": 2.0}, Writes(Counter({"POST jobs": 2, "POST pods": 1}), 3), 0.5, 2.0, 10.0
    )


def test_the_cpu_time_of_a_program_includes_that_of_its_children(tmp_path: Path) -> None:
    work = "import time\nwhile time.process_time() < 0.2: pass\n"
    parent = (
        "import subprocess, sys, time\n"
        f"subprocess.run([sys.executable, '-c', {work!r}])\n"
        "print('done', flush=True)\n"
        "time.sleep(600)\n"
    )
    program = Process("busy", [sys.executable, "-c", parent], log=tmp_path / "log")
    program.start()
    try:
        wait_until(lambda: "done" in program.log_text(), "the child's end", 60)
        assert program.pid is not None
        assert process_cpu_s(program.pid, {}) >= 0.2
        assert process_cpu_s(program.pid, {}) >= process_cpu_s(None, {}) == 0.0
        assert pss_mib({"busy": program})["busy"] > 1
    finally:
        program.stop(0)


def test_a_program_that_has_ended_costs_nothing_more() -> None:
    assert process_cpu_s(2**22 + os.getpid(), {}) == 0.0


def test_the_idle_share_is_that_between_two_readings() -> None:
    assert idle_share(MachineTime(10, 100), MachineTime(19, 110)) == 0.9
    assert idle_share(MachineTime(10, 100), MachineTime(10, 100)) == 0.0
    assert read_machine().total_s > read_machine().idle_s > 0
