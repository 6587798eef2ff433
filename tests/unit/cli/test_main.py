import os
import subprocess
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from fluxqueue.cli import main as entry

Program = Callable[[list[str]], int | None]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put a program in place of `fluxqueue local`."""

    def put(main: Program, *, service: bool = False) -> None:
        module = types.ModuleType("fluxqueue_program_for_a_test")
        module.main = main  # type: ignore[attr-defined]  # a module made on the spot has no declared names
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setitem(entry.PROGRAMS, "local", entry.Program(module.__name__, "", service))

    return put


def test_hands_the_words_after_the_program_over_and_returns_its_code(installed: Callable[..., None]) -> None:
    got: list[list[str]] = []

    def program(argv: list[str]) -> int:
        got.append(argv)
        return 3

    installed(program)
    assert entry.main(["local", "up", "--debug"]) == 3
    assert got == [["up", "--debug"]]


def test_a_program_that_returns_nothing_succeeded(installed: Callable[..., None]) -> None:
    installed(lambda argv: None)
    assert entry.main(["local"]) == 0


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        pytest.param(["qeue"], "fluxqueue: 'qeue' is not a command; did you mean 'queue'?", id="a slip"),
        pytest.param(
            ["xyzzy"],
            "fluxqueue: 'xyzzy' is not a command ('fluxqueue --help' lists the commands)",
            id="no idea",
        ),
        pytest.param(
            ["--colour", "local"], "fluxqueue: '--colour' is not an option of fluxqueue", id="an option"
        ),
    ],
)
def test_an_unknown_word_gets_one_sentence(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert entry.main(argv) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("argv", [[], ["--help"], ["-h"], ["help"]])
def test_help_lists_every_program(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(argv) == 0
    out = capsys.readouterr().out
    assert all(f"\n  {name} " in out for name in [*entry.PROGRAMS, "version"])


@pytest.mark.parametrize("argv", [["version"], ["--version"]])
def test_says_its_version(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(argv) == 0
    assert capsys.readouterr().out.startswith("fluxqueue ")


def test_ctrl_c_is_130_without_a_traceback(
    installed: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(argv: list[str]) -> int:
        raise KeyboardInterrupt

    installed(interrupted)
    assert entry.main(["local"]) == 130
    assert capsys.readouterr().err == ""


def _fails(argv: list[str]) -> int:
    raise LookupError("no such thing\nas this")


def test_an_unexpected_failure_is_one_sentence_and_a_file(
    installed: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    installed(_fails)
    assert entry.main(["local"]) == 1
    message = capsys.readouterr().err
    (log,) = (tmp_path / "fluxqueue").iterdir()
    assert (
        message
        == f"fluxqueue local failed unexpectedly: LookupError: no such thing as this (traceback in {log})\n"
    )
    assert "raise LookupError" in log.read_text()


def test_a_traceback_that_cannot_be_kept_is_shown_rather_than_lost(
    installed: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    installed(_fails)
    assert entry.main(["local"]) == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "environ", "service"),
    [
        pytest.param(["--debug", "local"], {}, False, id="asked for by an option"),
        pytest.param(["local"], {"FLUXQUEUE_DEBUG": "1"}, False, id="asked for by the environment"),
        pytest.param(["local"], {}, True, id="a service whose standard error is its log"),
    ],
)
def test_the_traceback_is_shown_where_it_is_wanted(
    argv: list[str],
    environ: dict[str, str],
    service: bool,
    installed: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for key, value in environ.items():
        monkeypatch.setenv(key, value)
    installed(_fails, service=service)
    assert entry.main(argv) == 1
    message = capsys.readouterr().err
    assert "Traceback" in message
    assert message.splitlines()[-1].startswith("fluxqueue local failed unexpectedly: LookupError")


def test_a_program_that_is_not_installed_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(entry.PROGRAMS, "local", entry.Program("fluxqueue_that_is_not_there.main", ""))
    assert entry.main(["local"]) == 1
    assert "this installation has no fluxqueue_that_is_not_there" in capsys.readouterr().err


def test_help_imports_no_library_but_the_standard_one() -> None:
    probe = (
        "import sys, fluxqueue.cli.main as m; m.main(['--help']); "
        "heavy = {'argparse','yaml','rich','msgspec','kubernetes','fastapi','structlog','grpc','psycopg',"
        "'asyncio'} & set(sys.modules); sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr


def test_the_plugin_starts_without_the_big_libraries() -> None:
    probe = (
        "import sys, fluxqueue.cli.plugin as p, fluxqueue.cli.lookup; p.plugin_parser(list(p.VERBS)); "
        "heavy = {'kubernetes','fastapi','aiohttp','rich','structlog','grpc','psycopg','asyncio','yaml'} & "
        "set(sys.modules); sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr


def test_whoever_reads_the_output_may_stop_reading() -> None:
    """`fluxqueue ... | head -1` ends quietly."""
    code = (
        "import sys, types, fluxqueue.cli.main as m\n"
        "program = types.ModuleType('talks'); sys.modules['talks'] = program\n"
        "def talk(argv):\n"
        "    while True: print('x' * 1000)\n"
        "program.main = talk; m.PROGRAMS['local'] = m.Program('talks', '')\n"
        "sys.exit(m.main(['local']))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    deadline = time.monotonic() + 20
    assert process.wait(timeout=deadline - time.monotonic()) == 0
    assert process.stderr.read() == ""
    process.stderr.close()
