"""Levels of a request above its slots: which of them bind it to one vertex, and how slots form groups below
vertices.

A level of the topology (rack, block, zone, or any other type above nodes) that carries a label is an
extension of the jobspec, for the batch calls. Levels may be left out between it and the slots, and vertices
are chosen so that few are used. There are two labels:

- ``group``: as many groups as the count says, each below one vertex of the type. Groups may share a vertex.
  ``rack[1]{group} -> slot[n]`` has all slots below one rack, ``rack[k]{group} -> slot[8]`` has each eight
  below one rack.
- ``preferred``: all below one vertex of the type if possible, else below one of the next level up, and so on;
  the request fits wherever it would fit without this level. Its count is 1.

Only the innermost level may have a count above 1. Levels without these labels mean what they mean in
flux-sched.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["GROUP", "PREFERRED", "LevelNeed"]

GROUP = "group"
PREFERRED = "preferred"


@dataclass(frozen=True, slots=True)
class LevelNeed:
    """One labelled level of a request.

    Attributes
    ----------
    type
        Of the vertices.
    groups
        Number of groups, each below one vertex of the type.
    preferred
        True if the level is a preference.
    """

    type: str
    groups: int
    preferred: bool
