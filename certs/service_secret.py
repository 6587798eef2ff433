"""The certificate of a Service beside the webhook: a key of its own, signed by the authority of the webhook's
Secret.

Its Secret has ``tls.crt``, ``tls.key`` and ``ca.crt``, by which its clients verify it: all authorities that
the API server trusts at present, so that a client which reads the Secret late still knows the one that
signed. The authority's key is in the webhook's Secret only. Who takes the key of one Service can serve by no
name of another one.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

from fluxqueue.certs.authority import Pair, ServingNames, issue_leaf, renewal_due
from fluxqueue.certs.pairs import InvalidPair, check_pair, covers, parse_certificate, signed_by

__all__ = ["service_secret"]


def service_secret(
    present: Mapping[str, bytes] | None, authority: Pair, bundle: bytes, names: ServingNames, now: dt.datetime
) -> dict[str, bytes] | None:
    """Return the complete data of the Secret of a Service; None if it needs no change.

    Parameters
    ----------
    present
        The Secret's data, decoded from base64; None if there is no Secret.
    authority
        Who signs at present.
    bundle
        What the API server trusts, PEM.
    names
        The names of the Service.
    now
        The time, with a zone.
    """
    data = dict(present or {})
    leaf = Pair(data.get("tls.crt", b""), data.get("tls.key", b""))
    if not _serves(leaf, authority, names, now):
        leaf = issue_leaf(authority, names, now)
    wanted = {"ca.crt": bundle, "tls.crt": leaf.certificate, "tls.key": leaf.key}
    return wanted if wanted != data else None


def _serves(leaf: Pair, authority: Pair, names: ServingNames, now: dt.datetime) -> bool:
    """True if a pair can be served for some time to come."""
    try:
        certificate = check_pair(leaf)
    except InvalidPair:
        return False
    signer = parse_certificate(authority.certificate)
    return signed_by(certificate, signer) and covers(certificate, names) and not renewal_due(certificate, now)
