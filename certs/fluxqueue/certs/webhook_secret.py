"""The webhook's certificate in a cluster without cert-manager: what to write next, decided from what stands there.

A Secret holds the authority (``ca.crt``, ``ca.key``) and the leaf the webhook serves (``tls.crt``, ``tls.key``); the webhook
configuration holds the ``caBundle`` the API server verifies with. The leader of the queue calls `plan` every so often and writes what it
says. No admission may fail on the way, and nothing reaches everybody at once: an API server learns of a new bundle by its watch, a
webhook of a new leaf when the kubelet has copied the Secret, a minute later or more. So an authority is replaced in steps that may each
be repeated or interrupted:

1. a next authority is made, kept in the Secret (``next.crt``, ``next.key``), and its certificate *added* to the bundle;
2. after `SPREAD_TIME`, the next authority becomes the authority and signs a new leaf; the bundle still holds both;
3. after `SETTLE_TIME` no webhook can be serving the old leaf: the old authority leaves the bundle.

A Secret that is lost or damaged starts again from nothing, but what the bundle trusted stays in it through step 3. Where a plan has a
bundle and a Secret, **the bundle is written first**: the other order would serve a leaf nobody trusts yet, and an authority whose key
was lost in between leaves the bundle by itself.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from fluxqueue.certs.authority import Pair, ServingNames, issue_leaf, issued_at, make_authority, renewal_due
from fluxqueue.certs.pairs import InvalidPair, check_pair, covers, signed_by

__all__ = ["SETTLE_TIME", "SPREAD_TIME", "Plan", "plan"]

SPREAD_TIME = dt.timedelta(minutes=10)
"""Between a new authority in the bundle and the first leaf it signs."""

SETTLE_TIME = dt.timedelta(hours=1)
"""Between a new leaf and the end of the authority before it."""

_CA, _NEXT, _LEAF = ("ca.crt", "ca.key"), ("next.crt", "next.key"), ("tls.crt", "tls.key")
_BEGIN, _END = b"-----BEGIN CERTIFICATE-----", b"-----END CERTIFICATE-----"
_COMMON_NAME = "fluxqueue webhook authority"


@dataclass(frozen=True, slots=True)
class Plan:
    """What to write now; empty when all is well.

    Attributes
    ----------
    ca_bundle
        PEM for every webhook of the configuration, to be written first; None: leave it.
    secret
        The Secret's whole data, not encoded; None: leave it.
    reasons
        What is being done and why, for log and Event.
    """

    ca_bundle: bytes | None = None
    secret: dict[str, bytes] | None = None
    reasons: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Plan(ca_bundle={self.ca_bundle is not None}, secret={self.secret is not None}, reasons={self.reasons})"


@dataclass(frozen=True, slots=True)
class _Held:
    pair: Pair
    certificate: x509.Certificate


def plan(secret: Mapping[str, bytes] | None, bundle: bytes, names: ServingNames, now: dt.datetime) -> Plan:
    """Decide the next step.

    Parameters
    ----------
    secret
        The Secret's data, decoded from base64; None where there is no Secret.
    bundle
        The ``caBundle`` that stands in the webhook configuration, PEM; empty, or anything that is not PEM, where there is none.
    names
        What the API server calls the webhook.
    now
        The time, with a zone.

    Returns
    -------
    Plan
        Carried out in the order bundle, Secret; calling again with the result decides the next step, usually none.
    """
    reasons: list[str] = []
    data = dict(secret or {})
    authority, following, leaf = (_held(data, keys, now) for keys in (_CA, _NEXT, _LEAF))
    trusted = _certificates(bundle)

    if authority is None:
        reasons.append("no usable authority: made one" if not data else "the Secret holds no usable authority: made a new one")
        authority, following = _authority(now), None
    elif following is not None and following.certificate in trusted and now >= issued_at(following.certificate) + SPREAD_TIME:
        reasons.append("the next authority is known to the API servers: it signs from now on")
        authority, following = following, None
    elif following is None and renewal_due(authority.certificate, now):
        reasons.append(f"the authority ends on {authority.certificate.not_valid_after_utc:%Y-%m-%d}: made the next one")
        following = _authority(now)

    if why := _leaf_problem(leaf, authority, names, now):
        reasons.append(f"{why}: issued a new leaf")
        leaf = _take(issue_leaf(authority.pair, names, now))
    assert leaf is not None

    wanted = [authority.certificate, *([following.certificate] if following else [])]
    former = [each for each in trusted if each not in wanted]
    if former and now < issued_at(leaf.certificate) + SETTLE_TIME:
        wanted += [each for each in former if each.not_valid_after_utc > now]
    elif former:
        reasons.append("former authorities leave the bundle")
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


def _held(data: Mapping[str, bytes], keys: tuple[str, str], now: dt.datetime) -> _Held | None:
    """A pair of the Secret, or None where it is missing, damaged or over."""
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
