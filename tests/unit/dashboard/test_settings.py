from pathlib import Path

from fluxqueue.dashboard.settings import DashboardSettings


def test_by_default_nobody_is_named_by_a_proxy_and_no_queue_is_asked() -> None:
    settings = DashboardSettings("127.0.0.1", 8445, Path("tls"))
    assert settings.proxy is None
    assert not settings.impersonate
    assert settings.queue.url == ""
