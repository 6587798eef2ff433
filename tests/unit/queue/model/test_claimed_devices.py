"""The devices of a jobspec in words."""

from __future__ import annotations

from decimal import Decimal

from fluxqueue.queue.model.claimed_devices import claimed_devices
from fluxqueue.queue.model.jobspecs import SizedPods, jobspec_of


def test_devices_of_all_pods_are_summed_by_class() -> None:
    large, small = (
        {"devices/gpu/any": Decimal(2), "cpu": Decimal(1)},
        {"devices/nic/0123456789~": Decimal(1), "cpu": Decimal(2)},
    )
    jobspec = jobspec_of("ns/n", [SizedPods(large, 4), SizedPods(small, 1)], duration_s=60)
    rough = "1 devices of class nic (counted without some of what is asked of them)"
    assert claimed_devices(jobspec) == f"8 devices of class gpu and {rough}"


def test_work_without_claims_has_none() -> None:
    assert claimed_devices(jobspec_of("ns/n", [SizedPods({"cpu": Decimal(1)}, 4)], duration_s=60)) == ""
