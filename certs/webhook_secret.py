"""The webhook's certificate in a cluster without cert-manager: what to write next, decided from the present
state.

A Secret contains the authority (``ca.crt``, ``ca.key``) and the leaf that the webhook serves (``tls.crt``,
``tls.key``). The webhook configuration contains the ``caBundle`` with which the API server verifies. The
leader of the queue calls `plan` periodically and writes the result. No admission may fail during a change,
and no change reaches all processes at once: an API server gets a new bundle by its watch, a webhook gets a
new leaf when the kubelet has copied the Secret, a minute later or more. So an authority is replaced in steps,
each of which may be repeated or interrupted:

1. a next authority is created, kept in the Secret (``next.crt``, ``next.key``), and its certificate is
  *added* to the bundle;
2. after `SPREAD_TIME`, the next authority becomes the authority and signs a new leaf; the bundle still
  contains both;
3. after `SETTLE_TIME` no webhook can be serving the old leaf, and the old authority is removed from the
  bundle.

A Secret that is lost or damaged is rebuilt, but authorities in the bundle stay in it through step 3. If a
plan has a bundle and a Secret, **the bundle is written first**: the other order would serve a leaf that is
not trusted yet. An authority whose key was lost in between leaves the bundle by itself.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from fluxqueue.certs.authority import Pair, ServingNames, issue_leaf, issued_at, make_authority, renewal_due
from fluxqueue.certs.pairs import InvalidPair, check_pair, covers, signed_by

__all__ = ["SETTLE_TIME", "SPREAD_TIME", "Plan", "plan"]

SPREAD_TIME = dt.timedelta(minutes=10)
"""Time between adding a new authority to the bundle and the first leaf that it signs."""

SETTLE_TIME = dt.timedelta(hours=1)
"""Time between a new leaf and the removal of the former authority."""

_CA, _NEXT, _LEAF = ("ca.crt", "ca.key"), ("next.crt", "next.key"), ("tls.crt", "tls.key")
_BEGIN, _END = b"-----BEGIN CERTIFICATE-----", b"-----END CERTIFICATE-----"
_COMMON_NAME = "fluxqueue webhook authority"


@dataclass(frozen=True, slots=True)
class Plan:
    """What to write now; empty if nothing has to change.

    Attributes
    ----------
    ca_bundle
        PEM for every webhook of the configuration, to be written first; None: no change.
    secret
        The complete data of the Secret, not encoded; None: no change.
    reasons
        What is done and why, for log and Event.
    """

    ca_bundle: bytes | None = None
    secret: dict[str, bytes] | None = None
    reasons: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return (
            f"Plan(ca_bundle={self.ca_bundle is not None}, secret={self.secret is not None}, "
            f"reasons={self.reasons})"
        )


@dataclass(frozen=True, slots=True)
class _Held:
    pair: Pair
    certificate: x509.Certificate


def plan(secret: Mapping[str, bytes] | None, bundle: bytes, names: ServingNames, now: dt.datetime) -> Plan:
    """Return the next step.

    Parameters
    ----------
    secret
        The Secret's data, decoded from base64; None if there is no Secret.
    bundle
        The present ``caBundle`` of the webhook configuration, PEM; empty or anything that is not PEM if there
        is none.
    names
        The names by which the API server calls the webhook.
    now
        The time, with a zone.

    Returns
    -------
    Plan
        To be written in the order bundle, Secret. Another call with the result decides the next step, usually
        none.
    """
    data = dict(secret or {})
    trusted = _certificates(bundle)
    authority, following, reason = _authorities(data, trusted, now)
    leaf = _held(data, _LEAF, now)
    reasons = [reason] if reason else []
    if why := _leaf_problem(leaf, authority, names, now):
        reasons.append(f"{why}: issued a new leaf")
        leaf = _take(issue_leaf(authority.pair, names, now))
    assert leaf is not None

    wanted = [authority.certificate, *([following.certificate] if following else [])]
    former = [each for each in trusted if each not in wanted]
    if former and now < issued_at(leaf.certificate) + SETTLE_TIME:
        wanted += [each for each in former if each.not_valid_after_utc > now]
    elif former:
        reasons.append("removed former authorities from the bundle")
    if any(each not in trusted for each in wanted):
        reasons.append("the bundle lacked an authority: added it")

    written = {**_entries(_CA, authority), **_entries(_NEXT, following), **_entries(_LEAF, leaf)}
    return Plan(
        ca_bundle=_bundle(wanted) if set(wanted) != set(trusted) or len(wanted) != len(trusted) else None,
        secret=written if written != data else None,
        reasons=tuple(reasons),
    )


def _leaf_problem(leaf: _Held | None, authority: _Held, names: ServingNames, now: dt.datetime) -> str | None:
    if leaf is None:
        return "no usable leaf"
    if not signed_by(leaf.certificate, authority.certificate):
        return "the leaf was signed by another authority"
    if not covers(leaf.certificate, names):
        return "the leaf does not cover the webhook's names"
    if renewal_due(leaf.certificate, now):
        return f"the leaf ends on {leaf.certificate.not_valid_after_utc:%Y-%m-%d}"
    return None


def _authorities(
    data: Mapping[str, bytes], trusted: Sequence[x509.Certificate], now: dt.datetime
) -> tuple[_Held, _Held | None, str]:
    """Return the authority that signs, the one that follows it, and why they are others than before."""
    authority, following = _held(data, _CA, now), _held(data, _NEXT, now)
    if authority is None:
        found = "the Secret contains no usable authority: created a new one"
        return _authority(now), None, found if data else "no usable authority: created one"
    if (
        following is not None
        and following.certificate in trusted
        and now >= issued_at(following.certificate) + SPREAD_TIME
    ):
        return following, None, "the API servers know the next authority: it signs from now on"
    if following is None and renewal_due(authority.certificate, now):
        end = authority.certificate.not_valid_after_utc
        return authority, _authority(now), f"the authority ends on {end:%Y-%m-%d}: created the next one"
    return authority, following, ""


def _held(data: Mapping[str, bytes], keys: tuple[str, str], now: dt.datetime) -> _Held | None:
    """Return a pair of the Secret, or None if it is missing, damaged or expired."""
    try:
        held = _take(Pair(data.get(keys[0], b""), data.get(keys[1], b"")))
    except InvalidPair:
        return None
    return held if now < held.certificate.not_valid_after_utc else None


def _take(pair: Pair) -> _Held:
    return _Held(pair, check_pair(pair))


def _authority(now: dt.datetime) -> _Held:
    return _take(make_authority(f"{_COMMON_NAME} {now:%Y-%m-%d}", now))


def _entries(keys: tuple[str, str], held: _Held | None) -> dict[str, bytes]:
    return {} if held is None else {keys[0]: held.pair.certificate, keys[1]: held.pair.key}


def _certificates(bundle: bytes) -> list[x509.Certificate]:
    found = []
    for part in bundle.split(_BEGIN)[1:]:
        try:
            found.append(x509.load_pem_x509_certificate(_BEGIN + part.partition(_END)[0] + _END + b"\n"))
        except ValueError:
            continue
    return found


def _bundle(certificates: list[x509.Certificate]) -> bytes:
    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates)
