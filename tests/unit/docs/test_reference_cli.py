from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from reference_cli import cli_page, command_lines, parser_of

from fluxqueue.cli import plugin
from fluxqueue.cli.main import PROGRAMS


def test_every_command_and_program_has_a_section() -> None:
    page = cli_page()
    commands = next(
        action for action in plugin.plugin_parser()._actions if isinstance(action, argparse._SubParsersAction)
    ).choices
    titles = {line.lstrip("# ") for line in page.splitlines() if line.startswith("#")}
    assert {f"kubectl fluxqueue {name}" for name in commands} | {
        f"fluxqueue {name}" for name in PROGRAMS
    } <= titles
    assert "fluxqueue local up" in titles


def test_arguments_are_shown_as_they_are_typed() -> None:
    parser = argparse.ArgumentParser(prog="p", description="About it.")
    parser.add_argument("name", nargs="+", metavar="NAME", help="which")
    parser.add_argument(
        "-o", "--output", choices=["wide", "json"], default="json", help="form (default: %(default)s)"
    )
    parser.add_argument("--queue", metavar="Q", required=True, help="where")
    parser.add_argument("--quiet", action="store_true", help=argparse.SUPPRESS)
    assert list(command_lines(parser, 2)) == [
        "## p\n",
        "About it.\n",
        "| argument | meaning |",
        "|---|---|",
        "| `NAME ...` | which |",
        "| `-o wide\\|json`, `--output wide\\|json` | form (default: json) |",
        "| `--queue Q` | where; required |",
        "",
    ]


def test_no_folder_of_this_machine_is_on_the_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    page = cli_page()
    assert "~/.local/state/fluxqueue" in page
    assert str(tmp_path) not in page
    assert str(Path.home()) not in page


def test_a_program_without_a_parser_has_none() -> None:
    assert parser_of("fluxqueue.cli.tables") is None
