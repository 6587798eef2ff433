"""The plan, carried out on a Secret and a bundle in memory, over twenty-five years."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store

from fluxqueue.certs import webhook_secret
from fluxqueue.certs.authority import Pair, ServingNames, make_authority, service_names
from fluxqueue.certs.pairs import check_pair, covers, parse_certificate
from fluxqueue.certs.webhook_secret import SETTLE_TIME, SPREAD_TIME, plan

START = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
NAMES = service_names("fluxqueue-webhook", "hpc")
HOST = x509.DNSName("fluxqueue-webhook.hpc.svc")
MINUTE, DAY = dt.timedelta(minutes=1), dt.timedelta(days=1)


@dataclass
class Cluster:
    """A Secret, a bundle and a clock."""

    now: dt.datetime = START
    secret: dict[str, bytes] | None = None
    bundle: bytes = b""
    reasons: list[str] = field(default_factory=list)
    served: list[tuple[dt.datetime, bytes]] = field(default_factory=list)
    known: list[tuple[dt.datetime, bytes]] = field(default_factory=list)

    def keep(self, names: ServingNames = NAMES) -> bool:
        """Carry out one plan; return True if it changed something."""
        step = plan(self.secret, self.bundle, names, self.now)
        if step.ca_bundle is not None:
            self.bundle = step.ca_bundle
            self.known.append((self.now, step.ca_bundle))
        if step.secret is not None:
            self.secret = step.secret
            self.served.append((self.now, step.secret["tls.crt"]))
        self.reasons += step.reasons
        return step.ca_bundle is not None or step.secret is not None

    @property
    def trusted(self) -> list[x509.Certificate]:
        return x509.load_pem_x509_certificates(self.bundle)

    @property
    def leaf(self) -> x509.Certificate:
        assert self.secret is not None
        return check_pair(Pair(self.secret["tls.crt"], self.secret["tls.key"]))

    def verify(self, leaf: bytes, bundle: bytes) -> None:
        """Verify a webhook's leaf as an API server with this bundle does."""
        store = Store(x509.load_pem_x509_certificates(bundle))
        PolicyBuilder().store(store).time(self.now.replace(tzinfo=None)).build_server_verifier(HOST).verify(
            parse_certificate(leaf), []
        )

    def seen_within(self, history: list[tuple[dt.datetime, bytes]], lag: dt.timedelta) -> Iterator[bytes]:
        """Return every version that a process may have if it learns of changes up to ``lag`` late."""
        for at, (_, content) in enumerate(history):
            until = (
                history[at + 1][0] + lag if at + 1 < len(history) else dt.datetime.max.replace(tzinfo=dt.UTC)
            )
            if until > self.now:
                yield content


def test_an_empty_cluster_gets_an_authority_a_leaf_and_a_bundle() -> None:
    cluster = Cluster()
    assert cluster.keep()
    assert covers(cluster.leaf, NAMES)
    assert cluster.secret is not None
    cluster.verify(cluster.secret["tls.crt"], cluster.bundle)
    assert cluster.bundle == cluster.secret["ca.crt"]
    assert not cluster.keep()


@pytest.mark.parametrize(
    "placeholder",
    [b"", b"\n", b"placeholder", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"],
)
def test_a_placeholder_in_the_bundle_gives_way(placeholder: bytes) -> None:
    cluster = Cluster(bundle=placeholder)
    assert cluster.keep()
    assert len(cluster.trusted) == 1


def test_through_twenty_five_years_no_admission_could_have_failed() -> None:
    """Webhooks get a leaf up to five minutes late, API servers a bundle up to one minute late,
    and every combination must verify.
    """
    cluster = Cluster()
    cluster.keep()
    authorities, leaves, restless = set(), set(), cluster.now
    while cluster.now < START + dt.timedelta(days=25 * 365):
        cluster.now += MINUTE if cluster.now < restless else 5 * DAY
        if cluster.keep():
            restless = (
                cluster.now + (SETTLE_TIME if len(cluster.trusted) > 1 else dt.timedelta()) + 6 * MINUTE
            )
        if cluster.now < restless:
            for leaf in cluster.seen_within(cluster.served, 5 * MINUTE):
                for bundle in cluster.seen_within(cluster.known, MINUTE):
                    cluster.verify(leaf, bundle)
        assert cluster.secret is not None
        authorities.add(cluster.secret["ca.crt"])
        leaves.add(cluster.secret["tls.crt"])
    assert len(authorities) == 4
    assert len(leaves) >= 25 * 365 // 66
    assert len(cluster.trusted) == 1


def test_an_authority_is_replaced_bundle_first_then_leaf_and_the_old_one_leaves_last() -> None:
    cluster = Cluster()
    cluster.keep()
    assert cluster.secret is not None
    old = cluster.secret["ca.crt"]
    cluster.now = START + dt.timedelta(days=3_650 * 2 // 3 + 1)
    cluster.keep()
    assert len(cluster.trusted) == 2
    assert cluster.secret["ca.crt"] == old
    following = cluster.secret["next.crt"]

    cluster.now += SPREAD_TIME - MINUTE
    assert not cluster.keep()
    cluster.now += MINUTE
    assert cluster.keep()
    assert cluster.secret["ca.crt"] == following
    assert "next.crt" not in cluster.secret
    assert len(cluster.trusted) == 2

    cluster.now += SETTLE_TIME - MINUTE
    assert not cluster.keep()
    cluster.now += MINUTE
    assert cluster.keep()
    assert cluster.bundle == following
    assert not cluster.keep()


def test_a_crash_between_bundle_and_secret_loses_nothing() -> None:
    cluster = Cluster()
    cluster.keep()
    cluster.now = START + dt.timedelta(days=3_650 * 2 // 3 + 1)
    lost = plan(cluster.secret, cluster.bundle, NAMES, cluster.now)
    assert lost.ca_bundle is not None
    cluster.bundle = lost.ca_bundle
    cluster.keep()
    for _ in range(200):
        cluster.now += MINUTE
        cluster.keep()
    assert len(cluster.trusted) == 1
    assert cluster.secret is not None
    cluster.verify(cluster.secret["tls.crt"], cluster.bundle)


def test_the_next_authority_does_not_sign_while_the_bundle_lacks_it() -> None:
    cluster = Cluster()
    cluster.keep()
    assert cluster.secret is not None
    before = cluster.bundle
    cluster.now = START + dt.timedelta(days=3_650 * 2 // 3 + 1)
    cluster.keep()
    cluster.bundle = before
    cluster.now += 2 * SPREAD_TIME
    old = cluster.secret["ca.crt"]
    assert cluster.keep()
    assert cluster.secret["ca.crt"] == old
    assert len(cluster.trusted) == 2


def test_a_bundle_somebody_emptied_is_filled_again_without_touching_the_secret() -> None:
    cluster = Cluster()
    cluster.keep()
    step = plan(cluster.secret, b"", NAMES, cluster.now)
    assert step.secret is None
    assert step.ca_bundle == cluster.bundle
    assert "the bundle lacked an authority" in step.reasons[0]


def test_new_names_get_a_new_leaf_of_the_same_authority() -> None:
    cluster = Cluster()
    cluster.keep()
    assert cluster.secret is not None
    authority = cluster.secret["ca.crt"]
    more = ServingNames(dns=NAMES.dns, addresses=("10.0.0.1",))
    assert cluster.keep(more)
    assert cluster.secret["ca.crt"] == authority
    assert covers(cluster.leaf, more)
    assert "does not cover" in cluster.reasons[-1]


@pytest.mark.parametrize("missing", ["ca.crt", "ca.key", "tls.crt", "tls.key"])
@pytest.mark.parametrize("content", [None, b"", b"damaged"])
def test_a_damaged_secret_is_made_whole_while_the_old_leaf_is_still_trusted(
    missing: str, content: bytes | None
) -> None:
    cluster = Cluster()
    cluster.keep()
    assert cluster.secret is not None
    served = cluster.secret["tls.crt"]
    cluster.secret = {key: value for key, value in cluster.secret.items() if key != missing} | (
        {} if content is None else {missing: content}
    )
    cluster.now += DAY
    assert cluster.keep()
    cluster.verify(cluster.secret["tls.crt"], cluster.bundle)
    cluster.verify(served, cluster.bundle)
    cluster.now += SETTLE_TIME
    cluster.keep()
    assert cluster.bundle == cluster.secret["ca.crt"]
    assert not cluster.keep()


def test_a_leaf_of_a_strange_authority_is_replaced() -> None:
    cluster = Cluster()
    cluster.keep()
    strange = make_authority("strange", START)
    cluster.secret = {**(cluster.secret or {}), "ca.crt": strange.certificate, "ca.key": strange.key}
    assert cluster.keep()
    assert "signed by another authority" in cluster.reasons[-2]
    cluster.verify(cluster.secret["tls.crt"], cluster.bundle)


def test_a_cluster_stopped_longer_than_its_authority_is_valid_starts_again() -> None:
    cluster = Cluster()
    cluster.keep()
    cluster.now = START + dt.timedelta(days=4_000)
    assert cluster.keep()
    assert len(cluster.trusted) == 1
    assert cluster.secret is not None
    cluster.verify(cluster.secret["tls.crt"], cluster.bundle)


def test_a_plan_never_shows_a_key() -> None:
    assert "PRIVATE" not in repr(plan(None, b"", NAMES, START))


def test_the_order_of_the_waiting_times_leaves_room_for_the_kubelet() -> None:
    assert dt.timedelta(minutes=5) <= SPREAD_TIME
    assert SETTLE_TIME > SPREAD_TIME
    assert dt.timedelta(days=1) > webhook_secret.SETTLE_TIME
