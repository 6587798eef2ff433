"""Commands: which are words, which need a shell, and that rendering expands neither."""

from __future__ import annotations

import shlex
import subprocess
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fluxqueue.minicluster.commands import (
    Command,
    array,
    assignment,
    batch_lines,
    exports,
    parse_command,
    words,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("lmp -v x 2 -in in.reaxff", ("lmp", "-v", "x", "2", "-in", "in.reaxff")),
        ('echo "two words" it\'s-not', None),
        ('echo "two words"', ("echo", "two words")),
        ("echo '$HOME; rm -rf *'", ("echo", "$HOME; rm -rf *")),
        ('echo "a;b|c"', ("echo", "a;b|c")),
        ("echo a=b --flag=c", ("echo", "a=b", "--flag=c")),
        ("  hostname  ", ("hostname",)),
    ],
)
def test_words_are_an_argument_vector(text: str, expected: tuple[str, ...] | None) -> None:
    command = parse_command(text)
    assert command == (Command(words=expected) if expected else Command(text=f"{text}\n"))


@pytest.mark.parametrize(
    "text",
    [
        "echo a && echo b",
        "echo $HOME",
        'echo "$HOME"',
        "ls *.txt",
        "a | b",
        "a\nb",
        "FOO=1 env",
        "cd /tmp",
        "echo ~",
        "echo `date`",
        "echo \\a",
        "sleep 1 &",
        "echo it\\'s",
        'echo "a\\"b"',
        "echo \\",
        "echo 'open",
    ],
)
def test_a_command_that_needs_a_shell_is_a_text(text: str) -> None:
    assert parse_command(text) == Command(text=f"{text}\n")


@given(st.text(st.sampled_from("ab '\"\\\t\n=$"), max_size=30))
def test_options_are_split_as_the_standard_library_splits_them(text: str) -> None:
    try:
        expected = tuple(shlex.split(text))
    except ValueError:
        expected = tuple(text.split())
    assert words(text) == expected


@given(st.text(st.sampled_from("ab '\"\\\t\n=$;-"), max_size=30))
def test_any_command_is_words_or_a_text(text: str) -> None:
    command = parse_command(text)
    assert bool(command) == bool(text.strip())
    assert not (command.words and command.text)


@pytest.mark.parametrize("part", ["x", "x ", "'", "'a'", '"', "\\'", "-n 2 ", "-o=$ ", "$"])
def test_a_long_command_is_read_in_one_pass(part: str) -> None:
    text = part * (65_536 // len(part))
    tracemalloc.start()
    parse_command(text)
    batch_lines(text)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 32 << 20


def test_nothing_is_nothing() -> None:
    assert not parse_command(" \n ")


@settings(max_examples=40, deadline=None)
@given(st.text(st.characters(min_codepoint=1, max_codepoint=0x2FFF, exclude_categories=["Cs"]), max_size=60))
def test_any_value_comes_out_of_bash_as_it_went_in(value: str) -> None:
    script = (
        f"{assignment('one', value)}\n"
        f"{array('many', [value, 'x'])}\n"
        f'printf \'%s\\0%s\\0%s\' "$one" "${{many[@]}}"'
    )
    out = subprocess.run(["bash"], input=script.encode(), capture_output=True, check=True, timeout=20).stdout
    assert out.decode() == f"{value}\0{value}\0x"


def test_lines_of_a_batch_keep_their_number_and_their_quotes() -> None:
    text = (
        "echo hello world\n\n"
        "-N1 -n 2 lmp 'a b'\n"
        "# a comment\n"
        "echo $FLUX_TASK_RANK | cat\n"
        "-n 2 --exclusive echo $HOME\n"
    )
    assert batch_lines(text) == [
        (0, "echo hello world", ("echo", "hello", "world")),
        (2, "-N1 -n 2 lmp 'a b'", ("-N1", "-n", "2", "lmp", "a b")),
        (4, "echo $FLUX_TASK_RANK | cat", ("/bin/bash", "-c", "echo $FLUX_TASK_RANK | cat")),
        (5, "-n 2 --exclusive echo $HOME", ("-n", "2", "--exclusive", "/bin/bash", "-c", "echo $HOME")),
    ]


def test_options_are_words_even_when_a_quote_is_left_open() -> None:
    assert words("-ompi=openmpi@5 -o 'cpu-affinity=per-task'") == (
        "-ompi=openmpi@5",
        "-o",
        "cpu-affinity=per-task",
    )
    assert words("-o 'x") == ("-o", "'x")


def test_exports_look_up_variables_and_expand_nothing_else() -> None:
    text = exports(
        {
            "PATH": "/opt/bin:$PATH",
            "QUOTE": 'a"b`date`$(date)\\',
            "BRACES": "${HOME}x",
            "MONEY": "5$",
            "not a name": "x",
        }
    )
    out = subprocess.run(
        ["bash"],
        input=f'PATH=/bin HOME=/home/me\n{text}printf "%s\\n" "$PATH" "$QUOTE" "$BRACES" "$MONEY"',
        capture_output=True,
        check=True,
        text=True,
        timeout=20,
    ).stdout
    assert out.splitlines() == ["/opt/bin:/bin", 'a"b`date`$(date)\\', "/home/mex", "5$"]
