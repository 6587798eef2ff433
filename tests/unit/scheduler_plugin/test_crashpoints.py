"""Every crash point of the scheduler is in its code, and its name is unique among all programs."""

from __future__ import annotations

import re
from pathlib import Path

from fluxqueue.queue.crashpoints import CrashPoint
from fluxqueue.scheduler_plugin import crashpoints
from fluxqueue.scheduler_plugin.crashpoints import SchedulerCrashPoint


def test_every_point_is_reached_somewhere() -> None:
    text = "".join(file.read_text() for file in Path(crashpoints.__file__).parent.rglob("*.py"))
    assert set(re.findall(r"reach\(SchedulerCrashPoint\.(\w+)\)", text)) == {
        point.name for point in SchedulerCrashPoint
    }


def test_no_point_is_armed_in_two_programs_at_once() -> None:
    assert not {*SchedulerCrashPoint} & {str(point) for point in CrashPoint}
