"""Whom a workload counts for under the limits of users.

The submitting user is known from admission. Controllers create work for others, whose names they do not pass
on: the Jobs of a CronJob, the pods of a Deployment. And who may create ServiceAccounts could be as many users
as they like. So the work of all ServiceAccounts in a namespace counts together, and so does work that was
created while the webhook was away.

Both go by one name, that of Kubernetes' group of these ServiceAccounts. Names that begin with ``system:`` are
not given to people, and who has such a name all the same counts as a program: so nobody takes a part of what
a namespace may use.
"""

from __future__ import annotations

from fluxqueue.queue.model.records import Workload

__all__ = ["PROGRAMS_OF", "PROGRAM_NAMES", "programs_of", "user_named", "user_of", "user_title"]

PROGRAMS_OF = "system:serviceaccounts:"
"""Begins the name that stands for the programs of a namespace."""
PROGRAM_NAMES = ("system:serviceaccount:", "system:kube-", PROGRAMS_OF)
"""So begin the names of users who count as the programs of a namespace."""


def programs_of(namespace: str) -> str:
    """Return the name that stands for the programs of a namespace,
    and for whoever submitted work there without a known name.
    """
    return f"{PROGRAMS_OF}{namespace}"


def user_of(workload: Workload) -> str:
    """Return the user for whom a workload counts, or the name that stands for the programs of its
    namespace.
    """
    return user_named(workload.submitted_by, workload.namespace)


def user_named(submitted_by: str, namespace: str) -> str:
    """Return the user for whom work counts that somebody of this name submitted in a namespace."""
    return (
        programs_of(namespace) if not submitted_by or submitted_by.startswith(PROGRAM_NAMES) else submitted_by
    )


def user_title(user: str) -> str:
    """Name a user, or the programs of a namespace, in a sentence."""
    namespace = user.removeprefix(PROGRAMS_OF)
    return f"user {user!r}" if namespace == user else f"work of ServiceAccounts in namespace {namespace!r}"
