"""Makes a failing world small: parts of its documents are left out as long as it fails in the same way.

All worlds with one part less are judged together, so a round costs as much as one batch. Of those that still
fail, the parts are left out together if that fails too, else the first alone.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from support.differential_worlds import World, is_work

__all__ = ["reduced"]

Json = dict[str, Any]
Step = tuple[int, tuple[str | int, ...]]
"""Index of a document, and the path of a part in it; the empty path is the whole document."""

ROUNDS = 12
AT_A_TIME = 40
_KEPT = {
    "apiVersion",
    "kind",
    "name",
    "namespace",
    "selector",
    "template",
    "capacity",
    "allocatable",
    "containers",
    "image",
    "metadata",
    "spec",
}


async def reduced(world: World, fails: Callable[[Sequence[World]], Awaitable[list[bool]]]) -> World:
    """Return a smaller world that fails too.

    Parameters
    ----------
    world
        One that fails.
    fails
        Judges worlds together.
    """
    for _ in range(ROUNDS):
        steps = [*_steps(world)]
        useful: list[Step] = []
        for start in range(0, len(steps), AT_A_TIME):
            part = steps[start : start + AT_A_TIME]
            failed = await fails([_without(world, [step]) for step in part])
            useful += [step for step, still in zip(part, failed, strict=True) if still]
            if useful and steps[0][1] == () and start == 0:
                break
        if not useful:
            return world
        tries = [_without(world, useful[:count]) for count in _sizes(len(useful))]
        failed = await fails(tries)
        world = next(
            each
            for each, still in zip([*tries, _without(world, useful[:1])], [*failed, True], strict=True)
            if still
        )
    return world


def _sizes(count: int) -> list[int]:
    """Return how many parts are left out at a time, the most first."""
    sizes = []
    while count > 1:
        sizes.append(count)
        count = count * 2 // 3
    return sizes


def _steps(world: World) -> Iterator[Step]:
    """Yield whole documents first, then the members of each."""
    needed = ("Namespace", "ServiceAccount")
    for index, each in enumerate(world.documents):
        if each["kind"] not in needed:
            yield index, ()
    for index, each in enumerate(world.documents):
        if each["kind"] not in needed:
            yield from ((index, path) for path in _paths(each, is_work(each) or each["kind"] == "Pod"))


def _paths(at: Any, deep: bool, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if isinstance(at, dict):
        for key, value in at.items():
            if key not in _KEPT and "differential/" not in key and key != "case":
                yield (*path, key)
            yield from _paths(value, deep, (*path, key))
    elif isinstance(at, list):
        for index, value in enumerate(at):
            if len(at) > 1:
                yield (*path, index)
            yield from _paths(value, deep, (*path, index))


def _without(world: World, steps: Sequence[Step]) -> World:
    documents: list[Json | None] = [copy.deepcopy(each) for each in world.documents]
    for index, path in sorted(steps, key=lambda step: [str(part).zfill(4) for part in step[1]], reverse=True):
        document = documents[index]
        if not path or document is None:
            documents[index] = None
            continue
        at: Any = document
        try:
            for part in path[:-1]:
                at = at[part]
            del at[path[-1]]
        except (KeyError, IndexError):
            continue  # a part of what is left out already
    return World(world.number, tuple(each for each in documents if each is not None))
