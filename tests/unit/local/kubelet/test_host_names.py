from fluxqueue.api.metadata import ObjectMeta
from fluxqueue.local.kubelet.host_names import NamedPod, Service, _ServiceSpec, hosts_file, service_lines


def pod(number: int, *, namespace: str = "ns", ready: bool = True) -> NamedPod:
    return NamedPod(
        namespace, f"job-{number}-x", f"127.64.1.{number}", f"job-{number}", "job", {"job-name": "job"}, ready
    )


def service(*, not_ready: bool = False) -> Service:
    spec = _ServiceSpec(selector={"job-name": "job"}, publish_not_ready_addresses=not_ready)
    return Service(metadata=ObjectMeta(name="job", namespace="ns"), spec=spec)


def addresses(pods: list[NamedPod], services: list[Service], name: str, asking: NamedPod) -> list[str]:
    lines = [
        line.split()
        for line in hosts_file(asking, service_lines(asking.namespace, pods, services)).splitlines()
    ]
    return [address for address, *names in lines if name in names]


def test_pods_of_a_headless_service_have_names() -> None:
    pods = [pod(1), pod(2)]
    for name in ("job-2.job", "job-2.job.ns", "job-2.job.ns.svc", "job-2.job.ns.svc.cluster.local"):
        assert addresses(pods, [service()], name, pods[0]) == ["127.64.1.2"]
    assert addresses(pods, [service()], "job", pods[0]) == ["127.64.1.1", "127.64.1.2"]


def test_only_ready_pods_have_names_unless_the_service_says_otherwise() -> None:
    pods = [pod(1), pod(2, ready=False)]
    assert addresses(pods, [service()], "job-2.job", pods[0]) == []
    assert addresses(pods, [service(not_ready=True)], "job-2.job", pods[0]) == ["127.64.1.2"]


def test_short_names_are_those_of_the_own_namespace() -> None:
    pods, other = [pod(1)], pod(9, namespace="other")
    assert addresses(pods, [service()], "job", other) == []
    assert addresses(pods, [service()], "job.ns", other) == ["127.64.1.1"]


def test_without_a_service_a_pod_knows_itself() -> None:
    assert (
        hosts_file(pod(1), service_lines("ns", [pod(1), pod(2)], []))
        == "127.0.0.1 localhost\n127.64.1.1 job-1\n"
    )
