from __future__ import annotations

import json
from typing import Any

from reference_values import VALUES, Value, values_of, values_page

TEXT = """# -- First,
# on two lines.
a: ""
b:
  # -- Inner | one.
  c: {x: 1}
  # A note.
  d: 2
"""


def paths(schema: dict[str, Any], path: str = "") -> list[str]:
    """Return the paths of the values that a schema lists."""
    below = schema.get("properties")
    return (
        [each for name, value in below.items() for each in paths(value, f"{path}.{name}".lstrip("."))]
        if below
        else [path]
    )


def test_a_value_has_its_default_and_its_comment() -> None:
    assert list(values_of(TEXT)) == [
        Value("a", '""', "First, on two lines."),
        Value("b.c", "{x: 1}", "Inner | one."),
    ]


def test_every_value_that_the_schema_lists_is_described() -> None:
    described = [value.path for value in values_of(VALUES.read_text())]
    schema = json.loads(VALUES.with_name("values.schema.json").read_text())
    missing = [
        path
        for path in paths(schema)
        if not any(
            path == each or path.startswith(f"{each}.") or each.startswith(f"{path}.") for each in described
        )
    ]
    assert missing == ["global"], "that is Helm's own"
    page = values_page()
    assert [path for path in described if f"| `{path}` |" not in page] == []
