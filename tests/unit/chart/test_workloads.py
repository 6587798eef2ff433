"""The programs, with the arguments, identities and limits they run under."""

from typing import Any

import msgspec
import pytest
import yaml
from chart_rendering import Chart, Json, Rendered, flag

from fluxqueue.api import names
from fluxqueue.fluxion import main as fluxion_main
from fluxqueue.queue import main as queue_main
from fluxqueue.queue.config import QueueConfig
from fluxqueue.webhook import main as webhook_main
from fluxqueue.webhook.server import _FINISH_S as FINISH_S


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


def _image(rendered: Rendered) -> str:
    return str(rendered.container("fluxqueue-queue", "queue")["image"])


def _config(rendered: Rendered) -> QueueConfig:
    return msgspec.yaml.decode(rendered.one("ConfigMap", "fluxqueue-queue")["data"]["queue.yaml"], type=QueueConfig)


def test_the_queue_reads_the_configuration_that_is_mounted(chart: Chart) -> None:
    changed = {"rackLabel": "example.com/rack", "startTimeoutSeconds": 60}
    rendered = chart.render({"queue": {"config": changed}, "namespaces": "allButSystem"})
    assert flag(rendered.container("fluxqueue-queue", "queue")["args"], "--config") == ["/etc/fluxqueue/queue.yaml"]
    said: dict[str, Any] = {"rack_label": "example.com/rack", "start_timeout_seconds": 60, "namespaces": "allButSystem"}
    assert _config(rendered) == QueueConfig(image=_image(rendered), **said)


def test_the_chart_s_configuration_is_the_program_s_own_defaults_said_in_full(default: Rendered) -> None:
    assert _config(default) == QueueConfig(image=_image(default))
    written = yaml.safe_load(default.one("ConfigMap", "fluxqueue-queue")["data"]["queue.yaml"])
    assert set(written) == {field.encode_name for field in msgspec.structs.fields(QueueConfig)}


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


def test_a_webhook_that_goes_away_is_given_the_time_to_drain(chart: Chart) -> None:
    rendered = chart.render({"webhook": {"drainSeconds": 30}})
    assert flag(rendered.container("fluxqueue-webhook", "webhook")["args"], "--drain-seconds") == ["30"]
    assert dict(rendered.pod_specs())["fluxqueue-webhook"]["terminationGracePeriodSeconds"] > 30 + FINISH_S


def test_the_webhook_sees_its_certificate_but_not_the_authority_s_key(default: Rendered) -> None:
    (tls,) = [volume["secret"] for volume in dict(default.pod_specs())["fluxqueue-webhook"]["volumes"] if volume["name"] == "tls"]
    assert {item["key"] for item in tls["items"]} == {"tls.crt", "tls.key"}
    assert tls["optional"] is True, "the pod says what it waits for, instead of not starting"


def test_the_webhook_is_told_where_never_to_look(chart: Chart) -> None:
    rendered = chart.render({"exemptNamespaces": ["cni"]}, namespace="ns")
    arguments = rendered.container("fluxqueue-webhook", "webhook")["args"]
    assert flag(arguments, "--exempt-namespace") == [*names.SYSTEM_NAMESPACES, "ns", "cni"]


def test_a_disruption_budget_exists_where_there_is_more_than_one(chart: Chart, default: Rendered) -> None:
    assert {pdb["metadata"]["name"] for pdb in default.all("PodDisruptionBudget")} == {"fluxqueue-webhook", "fluxqueue-queue"}
    assert chart.render({"webhook": {"replicas": 1}, "queue": {"replicas": 1}}).all("PodDisruptionBudget") == []


def test_a_queue_stands_by_and_is_ready_before_the_one_it_replaces_goes(default: Rendered) -> None:
    spec = default.one("Deployment", "fluxqueue-queue")["spec"]
    assert spec["replicas"] == 2
    assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}


def test_two_queues_tell_themselves_apart_by_their_pods_names(default: Rendered) -> None:
    environment = default.container("fluxqueue-queue", "queue")["env"]
    (name,) = [each["valueFrom"] for each in environment if each["name"] == "POD_NAME"]
    assert name == {"fieldRef": {"fieldPath": "metadata.name"}}


def test_every_program_understands_its_arguments(default: Rendered) -> None:
    """As far as its own parser goes: an unknown flag would end it at the start."""
    for parse, container in ((webhook_main._parser, "webhook"), (queue_main._parser, "queue"), (fluxion_main._parser, "fluxion")):
        workload = "fluxqueue-webhook" if container == "webhook" else "fluxqueue-queue"
        program, *arguments = default.container(workload, container)["args"]
        assert program == container
        parse().parse_args(arguments)


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
