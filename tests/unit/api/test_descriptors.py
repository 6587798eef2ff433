"""The soft limit of open files is raised, and connections leave a part of it."""

from __future__ import annotations

import resource

import pytest

from fluxqueue.api.descriptors import RESERVED, most_connections


class _Limits:
    """The limits of a process, without changing those of this one."""

    def __init__(self, soft: int, hard: int, *, forbidden: bool = False) -> None:
        self.pair = (soft, hard)
        self._forbidden = forbidden

    def get(self, _which: int) -> tuple[int, int]:
        return self.pair

    def set(self, _which: int, pair: tuple[int, int]) -> None:
        if self._forbidden:
            raise ValueError("not allowed to raise maximum limit")
        self.pair = pair


@pytest.mark.parametrize(
    ("limits", "wanted", "most", "soft"),
    [
        pytest.param(_Limits(1_024, 4_096), 1_024, 1_024, 4_096, id="raised to the hard limit"),
        pytest.param(_Limits(1_024, 1_024), 1_024, 1_024 - RESERVED, 1_024, id="no room"),
        pytest.param(_Limits(1_024, resource.RLIM_INFINITY), 1_024, 1_024, 65_536, id="raised to a bound"),
        pytest.param(_Limits(1_024, 4_096, forbidden=True), 1_024, 1_024 - RESERVED, 1_024, id="forbidden"),
        pytest.param(_Limits(100_000, 100_000), 200_000, 100_000 - RESERVED, 100_000, id="more already"),
        pytest.param(
            _Limits(resource.RLIM_INFINITY, resource.RLIM_INFINITY), 64, 64, resource.RLIM_INFINITY, id="none"
        ),
        pytest.param(_Limits(64, 64), 64, 1, 64, id="nearly none"),
    ],
)
def test_connections_leave_a_reserve_of_open_files(
    monkeypatch: pytest.MonkeyPatch, limits: _Limits, wanted: int, most: int, soft: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", limits.get)
    monkeypatch.setattr(resource, "setrlimit", limits.set)
    assert (most_connections(wanted), limits.pair[0]) == (most, soft)
