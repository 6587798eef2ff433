"""The reference of reasons: why work waits and what helps,
from the sentences that `kubectl fluxqueue explain` prints.
"""

from __future__ import annotations

from markdown_tables import cell, code, table

from fluxqueue.api.reasons import REASONS

__all__ = ["reasons_page"]

_HEAD = """# Reasons and remedies

Written by `docs/generate.py` from `api/reasons.py`. `kubectl fluxqueue explain NAME` prints these sentences,
with what the queue knows of the one workload: names, figures, times. [Objects](objects.md#reasons) says when
each is used.
"""


def reasons_page() -> str:
    """Return the page."""
    rows = (
        (code(str(reason)) or "none yet", cell(facts.why), cell(facts.helps))
        for reason, facts in REASONS.items()
    )
    return "\n".join([_HEAD, *table(("reason", "why", "what helps"), rows)]).rstrip() + "\n"
