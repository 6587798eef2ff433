"""Broker configurations: TOML that flux-core reads, with exactly the resources of the allocation."""

from __future__ import annotations

import tomllib
from decimal import Decimal
from typing import Any

import pytest
from support.minicluster_builders import IMAGE, minicluster, shares

from fluxqueue.minicluster.broker import Share, configuration, hosts, share_of
from fluxqueue.minicluster.injection_settings import identity_of
from fluxqueue.minicluster.render import FluxCluster, config_map

BOOTSTRAP_KEYS = {"curve_cert", "default_port", "default_bind", "default_connect", "hosts", "enable_ipv6"}
HOST_KEYS = {"host", "bind", "connect", "parent"}


def configured(given: list[Share] | None = None, **spec: Any) -> dict[str, Any]:
    cluster = minicluster(**spec)
    text = configuration(
        identity_of(cluster), cluster.spec, shares(cluster.spec.size) if given is None else given
    )
    return tomllib.loads(text)


def test_brokers_find_their_leader_by_its_name_and_try_again_after_two_seconds() -> None:
    config = configured()
    assert config["bootstrap"] == {
        "curve_cert": "/mnt/flux/config/curve/curve.cert",
        "default_port": 8050,
        "default_bind": "tcp://*:%p",
        "default_connect": "tcp://%h.lammps.default.svc.cluster.local:%p",
        "hosts": [{"host": "lammps-[0-3]"}],
    }
    assert config["tbon"] == {"connect_timeout": "2s"}
    assert config["resource"]["noverify"] is True
    assert config["sched-fluxion-qmanager"] == {"queue-policy": "fcfs"}


def access(runner: dict[str, Any], *sidecars: dict[str, Any], **spec: Any) -> dict[str, Any]:
    containers = [{"name": "app", "image": "app:1", "command": "x", "runFlux": True, **runner}]
    containers += [
        {"name": f"side-{place}", "image": "side:1", **each} for place, each in enumerate(sidecars)
    ]
    cluster = FluxCluster.of(minicluster(containers=containers, **spec), IMAGE)
    text = config_map(cluster, shares(4))["data"]["broker.toml"]
    return dict(tomllib.loads(text)["access"])


def user(number: int) -> dict[str, Any]:
    return {"securityContext": {"runAsUser": number}}


ALONE = {"allow-root-owner": True}
WITH_GUESTS = {"allow-guest-user": True, "allow-root-owner": True}


def test_without_other_users_there_are_no_guests() -> None:
    assert configured()["access"] == ALONE
    assert access({}) == ALONE
    assert access(user(1000), restful={"enabled": True}) == ALONE


@pytest.mark.parametrize(
    ("runner", "sidecar", "expected"),
    [
        (user(1000), user(1000), ALONE),
        (user(1000), user(0), ALONE),
        (user(1000), user(2000), WITH_GUESTS),
        (user(1000), {}, WITH_GUESTS),
        ({}, {"image": "app:1"}, ALONE),
        ({}, {}, WITH_GUESTS),
    ],
    ids=["same user", "root", "other user", "image's user", "same image", "other image"],
)
def test_a_sidecar_that_may_be_another_user_is_a_guest(
    runner: dict[str, Any], sidecar: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert access(runner, sidecar) == expected


def test_a_sidecars_user_may_be_set_for_the_pod_or_by_the_pod_template() -> None:
    assert access({}, {}, pod={"securityContext": {"runAsUser": 1000}}) == ALONE
    laid_over = {"spec": {"initContainers": [{"name": "side-0", **user(2000)}]}}
    assert access({}, {}, pod={"securityContext": {"runAsUser": 1000}}, podTemplate=laid_over) == WITH_GUESTS


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"size": 1},
        {"maxSize": 9},
        {"network": {"headlessName": "other"}},
        {"flux": {"topology": "binomial", "connectTimeout": "", "scheduler": {"simple": True}}},
        {"flux": {"bursting": {"leadBroker": {"address": "10.0.0.1", "name": "lead", "size": 3}}}},
        {"flux": {"bursting": {"clusters": [{"name": "more", "size": 2}, {}]}}},
        {"flux": {"bursting": {"hostlist": "lammps-[0-3],far-[1-2]"}}},
        {"flux": {"container": {"mountPath": '/a "quoted" path'}}},
    ],
)
def test_only_keys_that_every_flux_knows_are_in_bootstrap(spec: dict[str, Any]) -> None:
    bootstrap = configured(**spec)["bootstrap"]
    assert set(bootstrap) <= BOOTSTRAP_KEYS
    assert all(set(entry) <= HOST_KEYS for entry in bootstrap["hosts"])


@pytest.mark.parametrize("text", ["kary:2", 'a "quoted" word', "back\\slash", "\x00\x1f", "\x7f", "é"])
def test_any_text_of_a_spec_is_a_string_of_toml(text: str) -> None:
    assert configured(flux={"topology": text})["tbon"]["topo"] == text


def test_hosts_have_what_their_pods_were_granted_on_mixed_nodes_too() -> None:
    config = configured([Share(4, 1), Share(4, 1), Share(16), Share(4, 1)])
    assert config["resource"]["config"] == [
        {"hosts": "lammps-[0-1,3]", "cores": "0-3", "gpus": "0"},
        {"hosts": "lammps-2", "cores": "0-15"},
    ]


def test_hosts_that_may_come_later_are_listed_with_the_same_share() -> None:
    config = configured(shares(2, cores=3), size=2, maxSize=5)
    assert config["bootstrap"]["hosts"] == [{"host": "lammps-[0-4]"}]
    assert config["resource"]["config"] == [{"hosts": "lammps-[0-4]", "cores": "0-2"}]


def test_one_core_is_not_a_range() -> None:
    assert configured([Share(1)], size=1)["resource"]["config"][0]["cores"] == "0"


def test_a_lead_broker_elsewhere_is_rank_zero_at_its_address() -> None:
    config = configured(
        size=2,
        flux={"bursting": {"leadBroker": {"address": "192.0.2.7", "name": "lead", "size": 2, "port": 30093}}},
    )
    assert config["bootstrap"]["hosts"] == [
        {"host": "lead-0", "connect": "tcp://192.0.2.7:30093"},
        {"host": "lead-1,lammps-[0-1]"},
    ]


def test_bursted_clusters_get_the_names_and_sizes_that_were_left_out() -> None:
    cluster = minicluster(size=2, flux={"bursting": {"clusters": [{"name": "cloud", "size": 1}, {}]}})
    assert hosts(identity_of(cluster), cluster.spec) == [
        "lammps-0",
        "lammps-1",
        "cloud-0",
        "burst-1-0",
        "burst-1-1",
    ]


def test_a_custom_configuration_replaces_ours() -> None:
    assert configured(flux={"brokerConfig": "[exec]\nname = '$HOME `date`'"}) == {
        "exec": {"name": "$HOME `date`"}
    }


@pytest.mark.parametrize(
    ("requests", "node", "share"),
    [
        ({"cpu": "4"}, "32", Share(4)),
        ({"cpu": "7.91"}, "32", Share(7)),
        ({"cpu": "0.5"}, "32", Share(1)),
        ({}, "32", Share(32)),
        ({}, None, Share(1)),
        ({"cpu": "8", "nvidia.com/gpu": "2"}, None, Share(8, 2)),
        ({"cpu": "8", "amd.com/gpu": "1", "example.com/fpga": "3"}, None, Share(8, 1)),
    ],
)
def test_a_broker_has_the_whole_cores_of_its_container(
    requests: dict[str, str], node: str | None, share: Share
) -> None:
    asked = {name: Decimal(amount) for name, amount in requests.items()}
    assert share_of(asked, Decimal(node) if node else None) == share
