"""Every part of the pages on policies and on security is proved by tests that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import policy_promises, security_promises

ROOT = Path(__file__).parents[3]
PAGES = {
    "policies": (policy_promises.PROMISES, policy_promises.NO_PROMISES),
    "security": (security_promises.PROMISES, security_promises.NO_PROMISES),
}
FILES = {
    "policies": policy_promises.PAGES,
    "security": ("security.md", "reference/identities.md", "reference/trusted-writes.md"),
}
_AROUND = re.compile(r"#|!\[|\|[-| ]+\|$|    ")
"""Headings, pictures, rules of tables, and what is typed or printed."""


def parts(page: str) -> Iterator[str]:
    """Return the paragraphs, items of lists and rows of tables, each as one line."""
    whole = "\n\n".join((ROOT / "docs" / file).read_text() for file in FILES[page])
    text = re.sub(r"^```.*?^```$", "", whole, flags=re.MULTILINE | re.DOTALL)
    part: list[str] = []
    for line in [*text.splitlines(), ""]:
        begins = line.startswith(("|", "- "))
        if part and (begins or not line.strip() or _AROUND.match(line)):
            yield " ".join(part)
            part = []
        if line.strip() and not _AROUND.match(line):
            part.append(line.strip())


@pytest.mark.parametrize("page", PAGES)
def test_every_part_of_the_page_is_proved_once_or_promises_nothing(page: str) -> None:
    promises, no_promises = PAGES[page]
    known = (*promises, *no_promises)
    named = {part[:90]: [each for each in known if part.startswith(each)] for part in parts(page)}
    assert {part: names for part, names in named.items() if len(names) != 1} == {}
    assert {name for names in named.values() for name in names} == set(known), (
        "what is not on the page any more"
    )


@pytest.mark.parametrize("page", PAGES)
def test_the_tests_of_promises_exist(page: str) -> None:
    files: dict[str, str] = {}
    missing = []
    for reference in {each for tests in PAGES[page][0].values() for each in tests}:
        path, _, name = reference.partition("::")
        if path not in files:
            files[path] = (ROOT / "tests" / path).read_text() if (ROOT / "tests" / path).exists() else ""
        if not re.search(rf"^(async )?def {name}\(", files[path], re.MULTILINE):
            missing.append(reference)
    assert sorted(missing) == []
