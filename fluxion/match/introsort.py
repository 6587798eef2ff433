"""Sorting as libstdc++'s std::sort does it, tie for tie.

flux-sched sorts candidates with an unstable sort, and its answers show which of two equal candidates it
takes. So this module repeats the algorithm, not only the order. It is introsort as in GNU's library (Musser
1997): median-of-three partitions while more than sixteen elements are left, heap sort if the recursion gets
deeper than 2 log2 n, and one insertion sort over everything at the end. If all keys differ, any sort gives
the same order, and Python's is used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["introsort"]

T = TypeVar("T")
Pair = tuple[int, int]
"""Key and index in the caller's list; only the key is compared."""

_THRESHOLD = 16


def introsort(items: list[T], key: Callable[[T], int]) -> list[T]:
    """Sort ascending by key, with ties in the order of std::sort.

    Parameters
    ----------
    items
        In the order that they have before std::sort.
    key
        Integer key; negate it for a descending sort.

    Returns
    -------
    list
        A new list.
    """
    keys = [key(item) for item in items]
    if len(items) <= _THRESHOLD or len(set(keys)) == len(keys):
        return [items[i] for i in sorted(range(len(items)), key=keys.__getitem__)]
    pairs = list(zip(keys, range(len(items)), strict=True))
    _introsort_loop(pairs, 0, len(pairs), 2 * (len(pairs).bit_length() - 1))
    _final_insertion(pairs)
    return [items[index] for _, index in pairs]


def _introsort_loop(a: list[Pair], first: int, last: int, depth: int) -> None:
    while last - first > _THRESHOLD:
        if depth == 0:
            _heap_sort(a, first, last)
            return
        depth -= 1
        cut = _partition_pivot(a, first, last)
        _introsort_loop(a, cut, last, depth)
        last = cut


def _partition_pivot(a: list[Pair], first: int, last: int) -> int:
    middle = first + (last - first) // 2
    _median_to_first(a, first, first + 1, middle, last - 1)
    pivot = a[first][0]
    low, high = first + 1, last
    while True:
        while a[low][0] < pivot:
            low += 1
        high -= 1
        while pivot < a[high][0]:
            high -= 1
        if not low < high:
            return low
        a[low], a[high] = a[high], a[low]
        low += 1


def _median_to_first(a: list[Pair], result: int, x: int, y: int, z: int) -> None:
    if a[x][0] < a[y][0]:
        chosen = y if a[y][0] < a[z][0] else z if a[x][0] < a[z][0] else x
    elif a[x][0] < a[z][0]:
        chosen = x
    elif a[y][0] < a[z][0]:
        chosen = z
    else:
        chosen = y
    a[result], a[chosen] = a[chosen], a[result]


def _final_insertion(a: list[Pair]) -> None:
    for i in range(1, min(_THRESHOLD, len(a))):
        value = a[i]
        if value[0] < a[0][0]:
            a[1 : i + 1] = a[0:i]
            a[0] = value
        else:
            _insert_unguarded(a, i)
    for i in range(_THRESHOLD, len(a)):
        _insert_unguarded(a, i)


def _insert_unguarded(a: list[Pair], last: int) -> None:
    value = a[last]
    before = last - 1
    while value[0] < a[before][0]:
        a[before + 1] = a[before]
        before -= 1
    a[before + 1] = value


def _heap_sort(a: list[Pair], first: int, last: int) -> None:
    length = last - first
    for parent in range((length - 2) // 2, -1, -1):
        _adjust_heap(a, first, parent, length, a[first + parent])
    while last - first > 1:
        last -= 1
        value = a[last]
        a[last] = a[first]
        _adjust_heap(a, first, 0, last - first, value)


def _adjust_heap(a: list[Pair], first: int, hole: int, length: int, value: Pair) -> None:
    top = hole
    child = hole
    while child < (length - 1) // 2:
        child = 2 * (child + 1)
        if a[first + child][0] < a[first + child - 1][0]:
            child -= 1
        a[first + hole] = a[first + child]
        hole = child
    if length % 2 == 0 and child == (length - 2) // 2:
        child = 2 * (child + 1)
        a[first + hole] = a[first + child - 1]
        hole = child - 1
    parent = (hole - 1) // 2
    while hole > top and a[first + parent][0] < value[0]:
        a[first + hole] = a[first + parent]
        hole = parent
        parent = (hole - 1) // 2
    a[first + hole] = value
