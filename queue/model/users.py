"""Whom a workload counts for under the limits of users.

The submitting user is known from admission. Controllers create work for others, whose names they do not pass on: the Jobs of a CronJob, the
pods of a Deployment. And who may create ServiceAccounts could be as many users as they like. So the work of all ServiceAccounts in a
namespace counts together, and so does work that was created while the webhook was away.
"""

from __future__ import annotations

from fluxqueue.queue.model.records import Workload

__all__ = ["user_of", "user_title"]

_PROGRAMS = ("system:serviceaccount:", "system:kube-")
_OF_NAMESPACE = "namespace:"
"""Begins the name that stands for the programs of a namespace."""


def user_of(workload: Workload) -> str:
    """Return the user for whom a workload counts, or the name that stands for the programs of its namespace."""
    user = workload.submitted_by
    return f"{_OF_NAMESPACE}{workload.namespace}" if not user or user.startswith(_PROGRAMS) else user


def user_title(user: str) -> str:
    """Name a user, or the programs of a namespace, in a sentence."""
    namespace = user.removeprefix(_OF_NAMESPACE)
    return f"user {user!r}" if namespace == user else f"work of ServiceAccounts in namespace {namespace!r}"
