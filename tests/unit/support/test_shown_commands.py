from __future__ import annotations

from pathlib import Path

import pytest
from support.shown_commands import ShownCommand, problem, shown_commands

PAGE = """Type `kubectl fluxqueue jobs -A`, or
`kubectl fluxqueue hold`.

    $ kubectl fluxqueue explain lammps
    lammps waits

```sh
kubectl fluxqueue move lammps --queue night  # elsewhere
kubectl get jobs
```
"""


def test_commands_are_found_in_blocks_after_prompts_and_in_sentences(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    assert [(each.text, each.in_sentence) for each in shown_commands(page)] == [
        ("kubectl fluxqueue explain lammps", False),
        ("kubectl fluxqueue move lammps --queue night  # elsewhere", False),
        ("kubectl fluxqueue jobs -A", True),
        ("kubectl fluxqueue hold", True),
    ]


@pytest.mark.parametrize(
    "text",
    ["kubectl fluxqueue jobs --state running | wc -l", "fluxqueue simulate --jobs 3", "fluxqueue nothing"],
)
def test_a_command_that_the_program_takes_has_no_problem(text: str) -> None:
    assert problem(ShownCommand("page.md", text, in_sentence=False)) == ""


@pytest.mark.parametrize(
    ("text", "in_sentence"),
    [
        ("kubectl fluxqueue jobs --wrong", True),
        ("kubectl fluxqueue never", True),
        ("kubectl fluxqueue explain", False),
        ("fluxqueue simulate --wrong", False),
    ],
)
def test_a_command_that_the_program_refuses_is_named_with_its_page(text: str, in_sentence: bool) -> None:
    assert problem(ShownCommand("page.md", text, in_sentence)) == f"page.md: `{text}` is refused"


def test_a_sentence_may_name_a_command_without_its_arguments() -> None:
    assert problem(ShownCommand("page.md", "kubectl fluxqueue hold", in_sentence=True)) == ""
