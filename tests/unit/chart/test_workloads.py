"""The programs, with the arguments, identities and limits they run under."""

import pytest
import yaml
from chart_rendering import Chart, Json, Rendered, flag

from fluxqueue.api import names


def _containers(rendered: Rendered) -> list[tuple[str, Json, Json]]:
    return [(f"{name}/{c['name']}", spec, c) for name, spec in rendered.pod_specs() for c in spec["containers"]]


def test_the_programs_of_the_architecture_run(default: Rendered) -> None:
    assert [name for name, _, _ in _containers(default)] == [
        "fluxqueue-queue/queue",
        "fluxqueue-queue/fluxion",
        "fluxqueue-webhook/webhook",
        "fluxqueue-postgres/postgres",
    ]


def test_every_pod_passes_the_restricted_pod_security_standard(default: Rendered) -> None:
    for name, spec, container in _containers(default):
        pod = spec["securityContext"]
        own = container["securityContext"]
        assert pod["runAsNonRoot"] is True, name
        assert pod["runAsUser"] > 0, name
        assert pod["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert own["allowPrivilegeEscalation"] is False, name
        assert own["capabilities"] == {"drop": ["ALL"]}, name
        assert own["readOnlyRootFilesystem"] is True, name


def test_every_container_states_what_it_needs_and_is_probed(default: Rendered) -> None:
    for name, _, container in _containers(default):
        assert {"cpu", "memory"} <= set(container["resources"]["requests"]), name
        assert "memory" in container["resources"]["limits"], name
        assert "livenessProbe" in container, name


def test_no_image_names_a_registry(default: Rendered) -> None:
    assert {container["image"] for _, _, container in _containers(default)} == {
        "fluxqueue-queue:0.1.0",
        "fluxqueue-webhook:0.1.0",
        "postgres:17",
    }


def test_an_image_can_be_pinned_by_digest(chart: Chart) -> None:
    digest = "sha256:" + "0" * 64
    rendered = chart.render({"webhook": {"image": {"digest": digest}}})
    assert rendered.container("fluxqueue-webhook", "webhook")["image"] == f"fluxqueue-webhook@{digest}"


def test_the_queue_speaks_to_the_matcher_beside_it(chart: Chart) -> None:
    rendered = chart.render({"fluxion": {"port": 14242}})
    queue = rendered.container("fluxqueue-queue", "queue")["args"]
    fluxion = rendered.container("fluxqueue-queue", "fluxion")["args"]
    assert queue[0] == "queue"
    assert flag(queue, "--fluxion") == ["127.0.0.1:14242"]
    assert fluxion == ["fluxion", "--host", "127.0.0.1", "--port", "14242"]
    assert "14242" in str(rendered.container("fluxqueue-queue", "fluxion")["livenessProbe"])


def test_the_queue_reads_the_configuration_that_is_mounted(chart: Chart) -> None:
    rendered = chart.render(
        {"queue": {"config": {"rackLabel": "example.com/rack", "startTimeoutSeconds": 60}}, "namespaces": "allButSystem"}
    )
    assert flag(rendered.container("fluxqueue-queue", "queue")["args"], "--config") == ["/etc/fluxqueue/queue.yaml"]
    config = yaml.safe_load(rendered.one("ConfigMap", "fluxqueue-queue")["data"]["queue.yaml"])
    assert config == {
        "policy": "lonode",
        "cpuVertexMillicores": 100,
        "memoryVertexMiB": 256,
        "zoneLabel": names.ZONE_LABEL,
        "rackLabel": "example.com/rack",
        "startTimeoutSeconds": 60,
        "successorGraceSeconds": 30,
        "namespaces": "allButSystem",
        "retentionSeconds": 2_592_000,
        "logLevel": "info",
    }


def test_a_changed_configuration_restarts_the_queue(chart: Chart, default: Rendered) -> None:
    def checksum(rendered: Rendered) -> str:
        return str(rendered.one("Deployment", "fluxqueue-queue")["spec"]["template"]["metadata"]["annotations"]["checksum/config"])

    assert checksum(chart.render()) == checksum(default)
    assert checksum(chart.render({"queue": {"config": {"rackLabel": "rack"}}})) != checksum(default)


@pytest.mark.parametrize("mode", ["selfManaged", "certManager"])
def test_the_queue_makes_the_certificate_only_if_nobody_else_does(chart: Chart, mode: str) -> None:
    rendered = chart.render({"certificates": {"mode": mode}})
    arguments = rendered.container("fluxqueue-queue", "queue")["args"]
    told = [flag(arguments, f"--webhook-{what}") for what in ("secret", "configuration", "service")]
    ours = [["fluxqueue-webhook-tls"], ["fluxqueue-webhook"], ["fluxqueue-webhook"]]
    assert told == (ours if mode == "selfManaged" else [[], [], []])
    assert dict(rendered.pod_specs())["fluxqueue-webhook"]["volumes"][0]["secret"]["secretName"] == "fluxqueue-webhook-tls"


def test_every_port_is_a_value(chart: Chart) -> None:
    rendered = chart.render(
        {
            "webhook": {"port": 1001, "servicePort": 1002},
            "queue": {"metricsPort": 1003},
            "fluxion": {"port": 1004},
            "postgres": {"port": 1005},
        }
    )
    webhook = rendered.container("fluxqueue-webhook", "webhook")
    assert flag(webhook["args"], "--port") == ["1001"]
    assert webhook["ports"][0]["containerPort"] == 1001
    assert rendered.one("Service", "fluxqueue-webhook")["spec"]["ports"][0]["port"] == 1002
    assert rendered.all("MutatingWebhookConfiguration")[0]["webhooks"][0]["clientConfig"]["service"]["port"] == 1002
    assert flag(rendered.container("fluxqueue-queue", "queue")["args"], "--metrics-port") == ["1003"]
    assert ":1005/" in rendered.one("Secret", "fluxqueue-postgres")["stringData"]["url"]
    for port in ("9443", "8080", "4242", "5432"):
        assert port not in rendered.text


def test_a_webhook_that_goes_away_first_leaves_the_service_then_drains(chart: Chart) -> None:
    rendered = chart.render({"webhook": {"preStopSeconds": 7, "drainSeconds": 30}})
    webhook = rendered.container("fluxqueue-webhook", "webhook")
    assert webhook["lifecycle"]["preStop"]["sleep"]["seconds"] == 7
    assert flag(webhook["args"], "--drain-seconds") == ["30"]
    assert dict(rendered.pod_specs())["fluxqueue-webhook"]["terminationGracePeriodSeconds"] > 37


def test_the_webhook_is_told_where_never_to_look(chart: Chart) -> None:
    rendered = chart.render({"exemptNamespaces": ["cni"]}, namespace="ns")
    arguments = rendered.container("fluxqueue-webhook", "webhook")["args"]
    assert flag(arguments, "--exempt-namespace") == [*names.SYSTEM_NAMESPACES, "ns", "cni"]


def test_disruption_budgets_exist_where_there_is_more_than_one(chart: Chart, default: Rendered) -> None:
    assert [pdb["metadata"]["name"] for pdb in default.all("PodDisruptionBudget")] == ["fluxqueue-webhook"]
    more = chart.render({"queue": {"replicas": 2}, "webhook": {"replicas": 1}})
    assert [pdb["metadata"]["name"] for pdb in more.all("PodDisruptionBudget")] == ["fluxqueue-queue"]


def test_one_queue_is_replaced_and_never_doubled(chart: Chart, default: Rendered) -> None:
    assert default.one("Deployment", "fluxqueue-queue")["spec"]["strategy"] == {"type": "Recreate"}
    several = chart.render({"queue": {"replicas": 2}}).one("Deployment", "fluxqueue-queue")["spec"]["strategy"]
    assert several["rollingUpdate"] == {"maxUnavailable": 1, "maxSurge": 0}


def _database(rendered: Rendered) -> Json:
    environment = rendered.container("fluxqueue-queue", "queue")["env"]
    return dict(next(e["valueFrom"]["secretKeyRef"] for e in environment if e["name"] == "DATABASE_URL"))


def test_the_bundled_database_keeps_its_data_and_its_password(default: Rendered) -> None:
    secret = default.one("Secret", "fluxqueue-postgres")
    database = default.one("StatefulSet", "fluxqueue-postgres")["spec"]
    container = default.container("fluxqueue-postgres", "postgres")
    environment = {e["name"]: e.get("value") for e in container["env"]}
    mounts = {m["name"]: m["mountPath"] for m in container["volumeMounts"]}
    assert secret["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert secret["stringData"]["password"] in secret["stringData"]["url"]
    assert len(secret["stringData"]["password"]) >= 32
    assert environment["PGDATA"].startswith(mounts["data"] + "/")
    assert database["volumeClaimTemplates"][0]["metadata"]["name"] == "data"
    assert _database(default) == {"name": "fluxqueue-postgres", "key": "url"}
    assert "postgres:postgres" not in default.text


def test_a_database_that_is_brought_is_used_alone(chart: Chart) -> None:
    rendered = chart.render({"postgres": {"enabled": False}, "database": {"existingSecret": {"name": "corporate", "key": "dsn"}}})
    assert _database(rendered) == {"name": "corporate", "key": "dsn"}
    assert rendered.all("StatefulSet") == rendered.all("Secret") == []


def test_a_password_that_is_brought_is_not_made(chart: Chart) -> None:
    rendered = chart.render({"postgres": {"existingSecret": "ours"}})
    assert _database(rendered) == {"name": "ours", "key": "url"}
    assert rendered.all("Secret") == []


def test_selectors_find_exactly_the_pods_of_their_program(default: Rendered) -> None:
    labels = {
        o["metadata"]["name"]: o["spec"]["template"]["metadata"]["labels"] for k in ("Deployment", "StatefulSet") for o in default.all(k)
    }
    for service in default.all("Service"):
        selected = {name for name, own in labels.items() if service["spec"]["selector"].items() <= own.items()}
        assert selected == {service["metadata"]["name"]}
