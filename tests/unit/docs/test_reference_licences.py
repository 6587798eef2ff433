"""Every pinned distribution is under a licence that was thought of."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from reference_licences import ALLOWED, IMAGES, ROOT, identifiers, licence_of, licences_page, pins

SHIPPED = sorted({name for image in IMAGES for name in pins(ROOT / "images" / f"{image}.txt")})
PINNED = sorted(pins(ROOT / "constraints.txt"))


def installed(name: str) -> bool:
    """True if the environment that runs the tests has a distribution."""
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


@pytest.mark.parametrize("name", SHIPPED)
def test_each_distribution_of_the_images_is_under_an_allowed_licence(name: str) -> None:
    assert identifiers(licence_of(name)) <= ALLOWED


def test_the_tools_of_the_project_are_under_allowed_licences_too() -> None:
    tools = [name for name in PINNED if name not in SHIPPED and installed(name)]
    assert len(tools) > 30
    for name in tools:
        assert identifiers(licence_of(name)) <= ALLOWED, name


def test_the_page_lists_what_the_images_contain() -> None:
    page = licences_page()
    assert [name for name in SHIPPED if f"| `{name}` |" not in page] == []


def test_an_expression_is_taken_apart() -> None:
    assert identifiers("MPL-2.0 AND (Apache-2.0 OR MIT)") == {"MPL-2.0", "Apache-2.0", "MIT"}


def test_a_licence_that_nobody_thought_of_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reference_licences.ALLOWED", ALLOWED - {"Apache-2.0"})
    with pytest.raises(LookupError, match="grpcio: no licence"):
        licence_of("grpcio")


def test_a_file_of_requirements_is_read(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("# comment\nnumpy==2.1 \\\n    --hash=sha256:00\nuv==1.0 ; python_version > '3'\n")
    assert pins(file) == {"numpy": "2.1", "uv": "1.0"}
