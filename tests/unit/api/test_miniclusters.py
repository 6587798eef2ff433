"""The MiniCluster as the operator's YAML writes it."""

import msgspec
import pytest
import yaml

from fluxqueue.api.miniclusters import MiniCluster, MiniClusterContainer, MiniClusterSpec, RestService

HELLO = """
apiVersion: flux-framework.org/v1alpha2
kind: MiniCluster
metadata: {name: flux-sample}
spec:
  size: 4
  containers:
    - image: docker.io/library/rockylinux:9
      command: echo hello world
      volumes: {data: {claimName: data, path: /data, readOnly: true}}
      secrets: {TOKEN: {name: tokens, key: mine}}
  pod: {hostIPC: true, hostPID: true, nodeAffinity: {pool: [a, b]}}
"""


def read(text: str) -> MiniCluster:
    return msgspec.convert(yaml.safe_load(text), MiniCluster)


def test_missing_fields_have_the_operators_defaults() -> None:
    spec = read(HELLO).spec
    assert (spec.tasks, spec.min_size, spec.max_size, spec.deadline_seconds) == (1, 0, 0, 31_500_000)
    assert (spec.flux.container.name, spec.flux.container.mount_path, spec.flux.log_level) == (
        "flux-view",
        "/mnt/flux",
        6,
    )
    assert (spec.flux.scheduler.queue_policy, spec.pod.restart_policy) == ("fcfs", "OnFailure")
    assert spec.containers[0].logs == "/tmp/fluxout"
    assert spec.containers[0].image_pull_policy == "IfNotPresent"


def test_names_that_are_not_camel_case_are_read_as_they_are_written() -> None:
    pod = read(HELLO).spec.pod
    assert pod.host_ipc
    assert pod.host_pid


def test_without_a_maximum_a_minicluster_does_not_grow() -> None:
    assert read(HELLO).spec.maximum == 4


def test_the_service_is_named_like_the_minicluster_unless_it_says_otherwise() -> None:
    assert read(HELLO).service_name == "flux-sample"
    assert read(HELLO + "  network: {headlessName: other}\n").service_name == "other"


@pytest.mark.parametrize(
    ("containers", "runner"),
    [
        ([MiniClusterContainer()], 0),
        ([MiniClusterContainer(), MiniClusterContainer(run_flux=True)], 1),
        ([MiniClusterContainer(), MiniClusterContainer()], None),
        ([MiniClusterContainer(run_flux=True), MiniClusterContainer(run_flux=True)], None),
    ],
)
def test_exactly_one_container_runs_flux(containers: list[MiniClusterContainer], runner: int | None) -> None:
    assert MiniClusterSpec(containers=containers).runner_index == runner


def test_without_a_command_or_a_session_it_serves_rest() -> None:
    idle, busy = [MiniClusterContainer()], [MiniClusterContainer(command="lmp")]
    assert MiniClusterSpec(containers=idle).serves_rest
    assert not MiniClusterSpec(containers=idle, interactive=True).serves_rest
    assert not MiniClusterSpec(containers=busy).serves_rest
    assert MiniClusterSpec(containers=busy, restful=RestService(enabled=True)).serves_rest
    assert not MiniClusterSpec(containers=idle, restful=RestService(enabled=False)).serves_rest
