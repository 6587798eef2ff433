"""Every command on the page about the terminal can be typed as it is there."""

import re
import shlex
from pathlib import Path

import pytest

from fluxqueue.cli.plugin import VERBS, plugin_parser, split_words

PAGE = (Path(__file__).parents[3] / "docs" / "terminal.md").read_text()
LINES = re.findall(r"^(kubectl fluxqueue .+)$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("line", LINES)
def test_a_command_of_the_page_is_understood(line: str) -> None:
    words = shlex.split(line)[2:]
    own, _ = split_words(words)
    assert plugin_parser(own).parse_args(own).command in VERBS


def test_every_command_is_on_the_page() -> None:
    named = (
        {line.split()[2] for line in LINES}
        | set(re.findall(r"kubectl fluxqueue ([a-z]+)", PAGE))
        | set(re.findall(r"`([a-z]+)`", PAGE))
    )
    assert set(VERBS) - {"uninstall"} <= named
