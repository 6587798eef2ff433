from __future__ import annotations

from pathlib import Path

from fluxqueue.local.go_sources import delete_unused


def files(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def left(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_folders_without_a_needed_package_and_tests_are_deleted(tmp_path: Path) -> None:
    files(
        tmp_path,
        "cache/download/a.info",
        "k8s.io/a@v1/go.mod",
        "k8s.io/a@v1/pkg/x/x.go",
        "k8s.io/a@v1/pkg/x/x_test.go",
    )
    files(
        tmp_path,
        "k8s.io/a@v1/pkg/x/embedded/page.html",
        "k8s.io/a@v1/pkg/y/y.go",
        "k8s.io/b@v1/b.go",
        "org/c@v2/docs/c.yaml",
    )
    delete_unused(
        tmp_path, {tmp_path / "k8s.io/a@v1/pkg/x", Path("/usr/lib/go/src/fmt")}, {tmp_path / "org/c@v2"}
    )
    expected = {
        "cache/download/a.info",
        "k8s.io/a@v1/go.mod",
        "k8s.io/a@v1/pkg/x/x.go",
        "k8s.io/a@v1/pkg/x/embedded/page.html",
    }
    assert left(tmp_path) == {*expected, "org/c@v2/docs/c.yaml"}


def test_an_empty_list_deletes_nothing(tmp_path: Path) -> None:
    files(tmp_path, "k8s.io/a@v1/a.go")
    delete_unused(tmp_path, set())
    assert left(tmp_path) == {"k8s.io/a@v1/a.go"}
