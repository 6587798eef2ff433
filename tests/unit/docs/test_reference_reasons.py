from __future__ import annotations

from reference_reasons import reasons_page

from fluxqueue.api.fluxjobs import Reason


def test_every_reason_has_a_cause_and_a_remedy() -> None:
    rows = [line.strip("| ").split(" | ") for line in reasons_page().splitlines() if line.startswith("| ")][
        1:
    ]
    assert [row[0] for row in rows] == [f"`{reason}`" if str(reason) else "none yet" for reason in Reason]
    assert all(len(row) == 3 and all(row) for row in rows)
