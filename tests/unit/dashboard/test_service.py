from pathlib import Path

from fluxqueue.dashboard.service import DashboardService
from fluxqueue.dashboard.settings import DashboardSettings


def test_before_the_queue_has_been_read_nothing_is_shown(tmp_path: Path) -> None:
    service = DashboardService(DashboardSettings("127.0.0.1", 0, tmp_path))
    assert service.problem() == "The dashboard starts: it has not read the queue yet"
    assert service.state.version == 0
