import socket

import pytest

from fluxqueue.local.kubelet.addresses import AddressesExhausted, PodAddresses, agent_address, bind_agent


def test_each_pod_has_an_address_of_its_own() -> None:
    addresses = PodAddresses(64)
    taken = [addresses.take() for _ in range(600)]
    assert len(set(taken)) == 600
    assert taken[0] == "127.64.1.1"
    assert not [one for one in taken if one.endswith((".0", ".255"))]


def test_addresses_are_reused_late_and_come_to_an_end() -> None:
    addresses = PodAddresses(64)
    first = addresses.take()
    addresses.give_back(first)
    assert addresses.take() != first
    everything = {addresses.take() for _ in range(254 * 63 - 1)}
    assert first in everything
    with pytest.raises(AddressesExhausted):
        addresses.take()


def test_two_agents_have_two_networks() -> None:
    one, first = bind_agent((17_250,))
    other, second = bind_agent((17_250,))
    try:
        assert one != other
        assert first.getsockname() == (agent_address(one), 17_250)
    finally:
        first.close()
        second.close()


def test_a_port_that_another_kubelet_has_on_all_addresses_is_left_to_it() -> None:
    with socket.create_server(("", 0)) as other:
        taken = other.getsockname()[1]
        one, first = bind_agent((taken, 0))
        with first:
            assert first.getsockname()[0] == agent_address(one)
            assert first.getsockname()[1] != taken
