"""Digests of content, and the names of machines."""

from __future__ import annotations

from pathlib import Path

from fluxqueue.local.nodes.layout import NodeLayout, content_digest


def test_a_machine_is_named_after_its_number(tmp_path: Path) -> None:
    machine = NodeLayout(tmp_path).machine(3)
    assert (machine.name, machine.address, machine.pods, machine.folder) == (
        "n3",
        "10.200.0.3",
        "10.244.3.0/24",
        tmp_path / "n3",
    )


def test_a_digest_changes_with_content_names_and_order(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    first = content_digest(tmp_path)
    (tmp_path / "a").write_text("2")
    second = content_digest(tmp_path)
    (tmp_path / "a").rename(tmp_path / "b")
    assert (
        len(
            {
                first,
                second,
                content_digest(tmp_path),
                content_digest(tmp_path / "b"),
                content_digest("1", "2"),
                content_digest("12"),
            }
        )
        == 6
    )


def test_a_digest_of_the_same_content_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    assert content_digest(tmp_path, "x", b"y") == content_digest(tmp_path, "x", b"y")
