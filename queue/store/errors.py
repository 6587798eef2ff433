"""Changes that the store refuses, and what an error of Postgres means. Nothing was changed in any of them.

==================================  =======================================================================
SQLSTATE                            meaning
==================================  =======================================================================
none, 08, 25P03, 25P04, 28, 53,     Postgres is unavailable: it is waited for
55P03, 57, 58
25006, 42501                        the same: it only reads (a standby, or frozen by its administrator), or
                                    our role may not write; a person must end that, and then all goes on
25001                               the same: a pooler's session has another isolation level (`connections`)
40001, 40P01, 0A000                 the transaction is sent again, a few times (`transactions`)
22, 23502, 23514, 54, and what      a value does not fit: `Unstorable`; the objects of a change that has
psycopg cannot encode               several are written one by one, and this one alone fails
anything else                       a mistake of ours, which ends what asked for it
==================================  =======================================================================
"""

from __future__ import annotations

from typing import Final

import psycopg

from fluxqueue.api.termination import EndsProcess

__all__ = [
    "IllegalTransition",
    "PodAlreadyPlaced",
    "StaleLeader",
    "StoreError",
    "Unstorable",
    "is_unavailable",
    "is_unstorable",
]

_UNAVAILABLE: Final = ("08", "25001", "25006", "25P03", "25P04", "28", "42501", "53", "55P03", "57", "58")
_UNSTORABLE: Final = ("22", "23502", "23514", "54")


class StoreError(Exception):
    """The store refused a change."""


class StaleLeader(StoreError, EndsProcess):
    """The epoch is not the newest of its shard: another leader has taken over, and this one must stop."""


class PodAlreadyPlaced(StoreError):
    """A pod was to take two slots at once."""


class Unstorable(StoreError):
    """A value cannot be in the tables: a NUL in a text, a number out of range,
    a text that is too long for an index.
    """


class IllegalTransition(StoreError):
    """A workload was to be moved in a way that `fluxqueue.queue.model.states` does not have."""


def is_unavailable(error: psycopg.Error) -> bool:
    """True if an error is about the server or our rights and not about the statement."""
    if error.sqlstate is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)  # a broken connection
    return error.sqlstate.startswith(_UNAVAILABLE)


def is_unstorable(error: Exception) -> bool:
    """True if an error is about a value of the statement."""
    if isinstance(error, psycopg.Error) and error.sqlstate is not None:
        return error.sqlstate.startswith(_UNSTORABLE)
    return isinstance(error, psycopg.DataError | UnicodeEncodeError)
