"""The name of who asks, as the API server knows it: that of the FluxJobs that a person submitted."""

from __future__ import annotations

import json

from fluxqueue.cli.api_client import ApiClient

__all__ = ["SELF", "own_name"]

SELF = "\0me"
"""Stands for the name of who asks, where a user is selected."""
_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


def own_name(client: ApiClient) -> str:
    """Return the user name that the API server knows the person by.

    Raises
    ------
    ClusterError
        The server does not tell.
    """
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    return str(json.loads(client.post(_REVIEWS, review))["status"]["userInfo"]["username"])
