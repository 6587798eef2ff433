from __future__ import annotations

import pytest
from reference_versions import versions_table

from fluxqueue.local.kubernetes_versions import DEFAULT_MINOR, VERSIONS

DATE = "2026-11-26"


def counts(passed: int, failed: int = 0) -> dict[str, int | str]:
    return {"passed": passed, "failed": failed, "skipped": 0, "on": DATE}


@pytest.mark.parametrize(
    ("files", "said"),
    [
        pytest.param(
            {"test_a": counts(3), "test_b": counts(4)},
            f"end-to-end tests: 2 of 3 files, 7 tests, {DATE}",
            id="all passed",
        ),
        pytest.param(
            {"test_a": counts(3), "test_b": counts(4, failed=1)},
            f"end-to-end tests: 1 of 3 files, 3 tests, {DATE}; not `test_b`",
            id="a file failed",
        ),
        pytest.param({"test_a": counts(0, failed=1)}, "nothing yet; not `test_a`", id="all failed"),
        pytest.param({}, "nothing yet", id="none was run"),
    ],
)
def test_the_table_says_of_each_version_what_passed(
    files: dict[str, dict[str, int | str]], said: str
) -> None:
    lines = versions_table({"1.37": {"version": VERSIONS["1.37"], "files": files}}, files=3)
    assert f"| 1.37 | {VERSIONS['1.37'][1:]} | {said} |" in lines
    assert len(lines) == 2 + len(VERSIONS)
    assert next(line for line in lines if f"| {DEFAULT_MINOR} |" in line).endswith("| every tier of tests |")


def test_what_passed_on_another_patch_version_does_not_count() -> None:
    lines = versions_table({"1.37": {"version": "v1.37.0", "files": {"test_a": counts(3)}}}, files=3)
    assert f"| 1.37 | {VERSIONS['1.37'][1:]} | nothing yet |" in lines
