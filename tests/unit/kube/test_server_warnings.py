from __future__ import annotations

import pytest

from fluxqueue.kube.server_warnings import warnings_in


@pytest.mark.parametrize(
    ("header", "texts"),
    [
        ('299 - "label x is unknown"', ["label x is unknown"]),
        (r'299 - "label \"x\" is \\ unknown"', [r'label "x" is \ unknown']),
        ('299 webhook "late" "Thu, 01 Jan 1970 00:00:00 GMT"', ["late"]),
        ('199 - "another code"', []),
        ("299 - unquoted", []),
        ("", []),
    ],
)
def test_a_warning_is_its_text(header: str, texts: list[str]) -> None:
    assert list(warnings_in([header])) == texts
