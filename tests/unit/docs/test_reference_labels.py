from __future__ import annotations

from reference_labels import Key, keys_in, labels_page, meanings_in, rooms_that_use

from fluxqueue.api import names


def test_every_key_of_ours_is_on_the_page_with_a_meaning() -> None:
    rows = [
        line.split(" | ")
        for line in labels_page().split("## Of others")[0].splitlines()
        if line.startswith("| `")
    ]
    assert {row[0].strip("| `") for row in rows} >= {
        names.MANAGED_LABEL,
        names.DURATION_ANNOTATION,
        names.ALLOCATION_ANNOTATION,
    }
    assert [row[0] for row in rows if not row[2].strip()] == []


def test_keys_are_read_with_their_docstrings_each_once() -> None:
    source = (
        'A_LABEL: Final = "fluxqueue/a"\n'
        '"""Said ``here``."""\n'
        "B_LABEL: Final = A_LABEL\n"
        'C_LABEL: Final = "fluxqueue/a"\n'
        'D: Final = "d"\n'
    )
    assert list(keys_in(source)) == [Key("A_LABEL", "fluxqueue/a", "label", "Said `here`.")]


def test_meanings_are_those_of_the_tables_with_links_from_another_page() -> None:
    page = (
        "| label `a/b` | Job | see [x](../x.md#y) and [z](#z) |\n"
        "| annotation `a/b` | Pod | more |\n"
        "| `other` | - | no |\n"
    )
    assert meanings_in(page) == {"a/b": "see [x](../x.md#y) and [z](objects.md#z). more"}


def test_the_folders_that_use_a_key_are_named() -> None:
    assert "webhook" in rooms_that_use({"MANAGED_LABEL"})["MANAGED_LABEL"]
