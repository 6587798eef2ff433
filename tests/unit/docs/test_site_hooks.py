from __future__ import annotations

import pytest
from site_hooks import with_links


@pytest.mark.parametrize(
    ("link", "source", "page", "led"),
    [
        ("../CONTRIBUTING.md", "docs/architecture.md", "architecture.md", "repository/contributing.md"),
        (
            "../../CONTRIBUTING.md#x",
            "docs/guides/jobs.md",
            "guides/jobs.md",
            "../repository/contributing.md#x",
        ),
        ("docs/install.md", "README.md", "repository/readme.md", "../install.md"),
        (
            "../../docs/accounts.md#fair-share",
            "charts/fluxqueue/README.md",
            "repository/chart.md",
            "../accounts.md#fair-share",
        ),
        ("jobs.md", "docs/guides/pods.md", "guides/pods.md", "jobs.md"),
        ("../LICENSE", "docs/status.md", "status.md", "../LICENSE"),
        ("https://example.com/a.md", "docs/status.md", "status.md", "https://example.com/a.md"),
        ("#here", "docs/status.md", "status.md", "#here"),
    ],
)
def test_links_out_of_the_documentation_lead_to_pages_of_the_site(
    link: str, source: str, page: str, led: str
) -> None:
    assert with_links(f"See [it]({link}).", source, page) == f"See [it]({led})."
