from __future__ import annotations

import msgspec
from reference_configuration import attributes_of, configuration_page

from fluxqueue.queue.config import QueueConfig


def rows() -> dict[str, str]:
    return {
        line.split("|")[1].strip(): line
        for line in configuration_page().splitlines()
        if line.startswith("| `")
    }


def test_every_key_of_the_file_has_a_row_with_its_default_and_meaning() -> None:
    shown = rows()
    for field in msgspec.structs.fields(QueueConfig):
        assert f"`{field.encode_name}`" in shown
    assert (
        shown["`startTimeoutSeconds`"]
        == "| `startTimeoutSeconds` | integer | `300` | How long released pods may take to be bound. |"
    )
    assert shown["`scheduler`"].startswith("| `scheduler` | `stock` or `fluxion` or nothing |  | ")
    assert [row for row in shown.values() if row.count("|") != 5] == []


def test_structures_below_it_have_sections() -> None:
    page = configuration_page()
    assert [
        title
        for title in ("## accounting", "## fairShare", "## nodeShapes", "## topologyLevels")
        if title not in page
    ] == []


def test_a_docstring_names_what_it_describes() -> None:
    class Some(msgspec.Struct):
        """It.

        Attributes
        ----------
        one, two
            Both
            of them.
        three
            The third.
        """

    assert attributes_of(Some) == {"one": "Both of them.", "two": "Both of them.", "three": "The third."}
