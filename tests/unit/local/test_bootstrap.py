"""What ``make`` runs first: which requirements it installs, when it has nothing to do,
and what it says when pip fails.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from support.scripts import load_script

ROOT = Path(__file__).resolve().parents[3]

_CONFLICT = """\
ERROR: Ignored the following versions that require a different python version: 13.1 Requires-Python >=3.11.5
ERROR: Could not find a version that satisfies the requirement pymdown-extensions==13.1 \
(from mkdocs-material) (from versions: 1.0, 12.3)
ERROR: No matching distribution found for pymdown-extensions==13.1
"""


@pytest.fixture
def bootstrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = load_script("local/bootstrap.py")
    for name in ("VENV", "STAMP", "PIP_LOG"):
        monkeypatch.setattr(module, name, tmp_path / getattr(module, name).relative_to(ROOT))
    monkeypatch.setattr(module, "PYTHON", Path(sys.executable))
    module.VENV.mkdir()
    return module


def names(requirements: list[str]) -> set[str]:
    return {Requirement(text).name for text in requirements}


def commands(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, code: int = 0, says: str = ""
) -> list[list[str]]:
    """Record the commands instead of running them."""
    ran: list[list[str]] = []

    def run(command: list[str], log: Path | None = None) -> int:
        ran.append(command)
        if log is not None:
            log.write_text(says)
        return code

    monkeypatch.setattr(module, "_run", run)
    return ran


def test_the_demo_installs_nothing_for_tests_lint_or_docs(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = commands(bootstrap, monkeypatch)
    assert bootstrap.main([]) == 0
    (pip,) = ran
    assert [text for text in pip[pip.index("-e") + 1 :] if not text.startswith(".")] == []
    assert "constraints.txt" in pip


def test_a_group_contains_what_its_groups_contain(bootstrap: ModuleType) -> None:
    lint = names(bootstrap._requirements("lint"))
    assert {"ruff", "uv", "pytest", "mkdocs-material", "playwright"} <= lint
    assert names(bootstrap._requirements("docs")) == {"mkdocs-material"}


def test_groups_are_added_to_those_that_are_installed(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = commands(bootstrap, monkeypatch)
    assert bootstrap.main(["docs"]) == bootstrap.main(["browser"]) == 0
    assert {"mkdocs-material", "playwright"} <= {
        Requirement(text).name for text in ran[1][ran[1].index("-e") + 2 :]
    }
    assert json.loads(bootstrap.STAMP.read_text())["groups"] == ["browser", "docs"]


def test_nothing_runs_when_all_is_installed(bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = commands(bootstrap, monkeypatch)
    bootstrap.main(["docs"])
    assert bootstrap.main([]) == bootstrap.main(["docs"]) == 0
    assert len(ran) == 1


def test_a_damaged_stamp_means_that_nothing_is_known(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = commands(bootstrap, monkeypatch)
    bootstrap.STAMP.write_text("9f3b0c4ead")
    assert bootstrap.main([]) == 0
    assert len(ran) == 1


def test_an_unknown_group_is_refused_with_the_known_ones(
    bootstrap: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bootstrap.main(["tets"]) == 1
    assert "no dependency group 'tets', only browser, docs" in capsys.readouterr().err


def test_a_failure_names_distribution_python_and_remedy(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands(bootstrap, monkeypatch, code=1, says=_CONFLICT)
    assert bootstrap.main([]) == 1
    said = capsys.readouterr().err
    assert _CONFLICT in said
    python = ".".join(map(str, sys.version_info[:3]))
    assert (
        f"pymdown-extensions==13.1 cannot be installed with Python {python}; "
        "versions were left out that need Python >=3.11.5"
    ) in said
    assert "make PYTHON=" in said
    assert not bootstrap.STAMP.exists()


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        (
            (
                "ERROR: Cannot install mkdocs-material==9.8.1 because these package versions have "
                "conflicting dependencies."
            ),
            "mkdocs-material==9.8.1 cannot",
        ),
        (
            "WARNING: Retrying ... NewConnectionError('...: Failed to establish a new connection",
            "The package index cannot be reached",
        ),
        (
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
            "The disk is full",
        ),
        ("something else", "Its message stands above."),
    ],
)
def test_each_failure_of_pip_has_its_remedy(bootstrap: ModuleType, output: str, sentence: str) -> None:
    assert bootstrap.remedy(output).startswith(sentence)


def test_a_folder_that_cannot_be_written_is_named(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "unlink", refuse)
    assert bootstrap.main([]) == 1
    assert f"cannot write {bootstrap.VENV}: Permission denied" in capsys.readouterr().err


def test_it_runs_on_an_old_python_as_far_as_its_message(tmp_path: Path) -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'local')!r}); import bootstrap; "
        "bootstrap.AT_LEAST = (9, 9); bootstrap.shutil.which = lambda name: None; raise "
        "SystemExit(bootstrap.main([]))"
    )
    ended = subprocess.run(
        [sys.executable, "-B", "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 1
    assert "install one, or name it with `make PYTHON=...`" in ended.stderr
