"""Whom a workload counts for under the limits of users.

The submitting user is known from admission. Controllers create work for others, whose names they do not pass on: the Jobs of a CronJob, the
pods of a Deployment. And who may create ServiceAccounts could be as many users as they like. So the work of all ServiceAccounts in a
namespace counts together, and so does work that was created while the webhook was away.

Both go by one name, that of Kubernetes' group of these ServiceAccounts. Names that begin with ``system:`` are not given to people, and who
has such a name all the same counts as a program: so nobody takes a part of what a namespace may use.
"""

from __future__ import annotations

from fluxqueue.queue.model.records import Workload

__all__ = ["PROGRAMS_OF", "programs_of", "user_of", "user_title"]

PROGRAMS_OF = "system:serviceaccounts:"
"""Begins the name that stands for the programs of a namespace."""
_PROGRAMS = ("system:serviceaccount:", "system:kube-", PROGRAMS_OF)


def programs_of(namespace: str) -> str:
    """Return the name that stands for the programs of a namespace, and for whoever submitted work there without a known name."""
    return f"{PROGRAMS_OF}{namespace}"


def user_of(workload: Workload) -> str:
    """Return the user for whom a workload counts, or the name that stands for the programs of its namespace."""
    user = workload.submitted_by
    return programs_of(workload.namespace) if not user or user.startswith(_PROGRAMS) else user


def user_title(user: str) -> str:
    """Name a user, or the programs of a namespace, in a sentence."""
    namespace = user.removeprefix(PROGRAMS_OF)
    return f"user {user!r}" if namespace == user else f"work of ServiceAccounts in namespace {namespace!r}"
