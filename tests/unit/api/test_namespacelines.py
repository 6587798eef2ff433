"""Who adds much at once does not delay others."""

from __future__ import annotations

from fluxqueue.api.namespacelines import NamespaceLines


def test_namespaces_take_turns_each_in_its_own_order() -> None:
    lines: NamespaceLines[int] = NamespaceLines()
    for namespace, item in (
        ("crowd", 1),
        ("crowd", 2),
        ("crowd", 3),
        ("one", 4),
        ("crowd", 5),
        ("other", 6),
    ):
        lines.add(namespace, item)
    lines.discard(2)
    lines.discard(99)
    assert 2 not in lines
    assert 4 in lines
    assert (lines.length("crowd"), lines.length("nobody")) == (3, 0)
    assert [lines.take() for _ in range(len(lines))] == [1, 4, 6, 3, 5]
    assert not lines
    lines.add("crowd", 7)
    lines.clear()
    assert not lines
