from datetime import UTC, datetime

from fluxqueue.local.kubelet.node_status import node_status

NOW = datetime(2026, 11, 26, 20, 0, tzinfo=UTC)


def test_a_node_is_ready_at_the_agent_s_address() -> None:
    status = node_status("127.64.0.1", 10250, {"kubeletVersion": "v1.36.3"}, "node-1", NOW, ready=True)
    conditions = {each["type"]: each["status"] for each in status["conditions"]}
    assert conditions == {
        "Ready": "True",
        "MemoryPressure": "False",
        "DiskPressure": "False",
        "PIDPressure": "False",
    }
    assert status["addresses"][0] == {"type": "InternalIP", "address": "127.64.0.1"}
    assert status["daemonEndpoints"]["kubeletEndpoint"]["Port"] == 10250


def test_a_node_that_is_set_down_is_not_ready() -> None:
    status = node_status("127.64.0.1", 10250, {}, "node-1", NOW, ready=False)
    assert {each["type"]: each["status"] for each in status["conditions"]}["Ready"] == "False"
