"""The workloads: arguments, identities and limits of the programs."""

import base64
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from cryptography import x509
from support.chart_rendering import Chart, Json, Rendered, flag

from fluxqueue.api import names
from fluxqueue.api.fluxqueues import SchedulerName
from fluxqueue.api.topology import DEFAULT_LEVELS, levels_of
from fluxqueue.cli import verify
from fluxqueue.fluxion import main as fluxion_main
from fluxqueue.queue import main as queue_main
from fluxqueue.queue.config import QueueConfig
from fluxqueue.serving.guarded_server import FINISH_S
from fluxqueue.webhook import main as webhook_main


def _containers(rendered: Rendered) -> list[tuple[str, Json, Json]]:
    return [
        (f"{name}/{c['name']}", spec, c) for name, spec in rendered.pod_specs() for c in spec["containers"]
    ]


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


def test_liveness_of_our_servers_is_asked_of_a_port_of_its_own(chart: Chart) -> None:
    """One that a flood of another port does not reach, nor a busy event loop."""
    rendered = chart.render({"scheduler": {"enabled": True}, "dashboard": {"enabled": True}})
    for name in ("webhook", "queue", "scheduler", "dashboard"):
        container = rendered.container(f"fluxqueue-{name}", name)
        for probe in ("startupProbe", "livenessProbe"):
            assert container[probe]["httpGet"] == {"path": "/healthz", "port": "health"}, name
        (port,) = [port["containerPort"] for port in container["ports"] if port["name"] == "health"]
        assert flag(container["args"], "--health-port") == [str(port)]


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


def test_the_queue_connects_to_the_matcher_in_its_pod(chart: Chart) -> None:
    rendered = chart.render({"fluxion": {"port": 14242}})
    queue = rendered.container("fluxqueue-queue", "queue")["args"]
    fluxion = rendered.container("fluxqueue-queue", "fluxion")["args"]
    assert queue[0] == "queue"
    assert flag(queue, "--fluxion") == ["127.0.0.1:14242"]
    assert fluxion[:5] == ["fluxion", "--host", "127.0.0.1", "--port", "14242"]


def test_the_kubelet_probes_the_matcher_on_a_port_with_health_alone(chart: Chart) -> None:
    rendered = chart.render({"fluxion": {"healthPort": 14243}})
    fluxion = rendered.container("fluxqueue-queue", "fluxion")
    assert (flag(fluxion["args"], "--health-host"), flag(fluxion["args"], "--health-port")) == (
        ["0.0.0.0"],
        ["14243"],
    )
    assert [fluxion[f"{kind}Probe"]["grpc"] for kind in ("startup", "liveness")] == [{"port": 14243}] * 2


def test_no_probe_starts_a_python_process(chart: Chart) -> None:
    rendered = chart.render({"scheduler": {"enabled": True}})
    commands = [
        container[f"{kind}Probe"].get("exec", {}).get("command", [])
        for _, _, container in _containers(rendered)
        for kind in ("startup", "liveness", "readiness")
        if f"{kind}Probe" in container
    ]
    assert not [command for command in commands if "python" in str(command) or "fluxqueue" in command[:1]]


def _image(rendered: Rendered) -> str:
    return str(rendered.container("fluxqueue-queue", "queue")["image"])


def _config(rendered: Rendered) -> QueueConfig:
    return msgspec.yaml.decode(
        rendered.one("ConfigMap", "fluxqueue-queue")["data"]["queue.yaml"], type=QueueConfig
    )


def test_the_queue_reads_the_configuration_that_is_mounted(chart: Chart) -> None:
    changed = {"rackLabel": "example.com/rack", "startTimeoutSeconds": 60}
    rendered = chart.render(
        {"queue": {"config": changed}, "namespaces": "allButSystem", "exemptNamespaces": ["cni"]}
    )
    assert flag(rendered.container("fluxqueue-queue", "queue")["args"], "--config") == [
        "/etc/fluxqueue/queue.yaml"
    ]
    config: dict[str, Any] = {
        "rack_label": "example.com/rack",
        "start_timeout_seconds": 60,
        "namespaces": "allButSystem",
    }
    assert _config(rendered) == QueueConfig(image=_image(rendered), **config)


def test_the_charts_configuration_equals_the_programs_defaults(default: Rendered) -> None:
    assert _config(default) == QueueConfig(image=_image(default))
    written = yaml.safe_load(default.one("ConfigMap", "fluxqueue-queue")["data"]["queue.yaml"])
    assert set(written) | {"scheduler"} == {
        field.encode_name for field in msgspec.structs.fields(QueueConfig)
    }


def test_the_queue_hears_of_a_scheduler_of_ours_only_where_one_is_installed(
    chart: Chart, default: Rendered
) -> None:
    assert _config(default).scheduler is None
    assert _config(chart.render({"scheduler": {"enabled": True}})).scheduler is SchedulerName.STOCK
    assert (
        _config(chart.render({"scheduler": {"enabled": True, "default": "fluxion"}})).scheduler
        is SchedulerName.FLUXION
    )


def test_a_changed_configuration_restarts_the_queue(chart: Chart, default: Rendered) -> None:
    def checksum(rendered: Rendered) -> str:
        return str(
            rendered.one("Deployment", "fluxqueue-queue")["spec"]["template"]["metadata"]["annotations"][
                "checksum/config"
            ]
        )

    assert checksum(chart.render()) == checksum(default)
    assert checksum(chart.render({"queue": {"config": {"rackLabel": "rack"}}})) != checksum(default)


@pytest.mark.parametrize("mode", ["selfManaged", "certManager"])
def test_the_queue_issues_the_certificate_only_in_its_own_mode(chart: Chart, mode: str) -> None:
    rendered = chart.render({"certificates": {"mode": mode}})
    arguments = rendered.container("fluxqueue-queue", "queue")["args"]
    told = [flag(arguments, f"--webhook-{what}") for what in ("secret", "configuration", "service")]
    ours = [["fluxqueue-webhook-tls"], ["fluxqueue-webhook"], ["fluxqueue-webhook"]]
    assert told == (ours if mode == "selfManaged" else [[], [], []])
    (tls,) = [
        volume["secret"]
        for volume in dict(rendered.pod_specs())["fluxqueue-webhook"]["volumes"]
        if volume["name"] == "tls"
    ]
    assert tls["secretName"] == "fluxqueue-webhook-tls"


def test_every_port_is_a_value(chart: Chart) -> None:
    rendered = chart.render(
        {
            "webhook": {"port": 1001, "servicePort": 1002},
            "queue": {"metricsPort": 1003, "healthPort": 1007},
            "fluxion": {"port": 1004, "healthPort": 1006},
            "postgres": {"port": 1005},
        }
    )
    webhook = rendered.container("fluxqueue-webhook", "webhook")
    assert flag(webhook["args"], "--port") == ["1001"]
    assert webhook["ports"][0]["containerPort"] == 1001
    assert rendered.one("Service", "fluxqueue-webhook")["spec"]["ports"][0]["port"] == 1002
    assert (
        rendered.all("MutatingWebhookConfiguration")[0]["webhooks"][0]["clientConfig"]["service"]["port"]
        == 1002
    )
    assert flag(rendered.container("fluxqueue-queue", "queue")["args"], "--metrics-port") == ["1003"]
    assert flag(rendered.container("fluxqueue-queue", "queue")["args"], "--health-port") == ["1007"]
    assert ":1005/" in rendered.one("Secret", "fluxqueue-postgres")["stringData"]["url"]
    for port in ("9443", "8080", "8443", "4242", "4243", "5432"):
        assert port not in rendered.text


def test_a_stopping_webhook_has_the_time_to_drain(chart: Chart) -> None:
    rendered = chart.render({"webhook": {"drainSeconds": 30}})
    assert flag(rendered.container("fluxqueue-webhook", "webhook")["args"], "--drain-seconds") == ["30"]
    assert dict(rendered.pod_specs())["fluxqueue-webhook"]["terminationGracePeriodSeconds"] > 30 + FINISH_S


def test_the_webhook_and_the_queue_allow_as_many_pods_of_a_workload(chart: Chart) -> None:
    rendered = chart.render({"queue": {"config": {"maxPods": 100_000}}})
    assert flag(rendered.container("fluxqueue-webhook", "webhook")["args"], "--max-pods") == ["100000"]
    assert "maxPods: 100000\n" in rendered.text


def test_the_webhook_knows_the_levels_of_the_queue(chart: Chart) -> None:
    default = flag(chart.render({}).container("fluxqueue-webhook", "webhook")["args"], "--topology-level")
    assert levels_of(default) == DEFAULT_LEVELS
    config = {
        "topologyLevels": [
            {"name": "row", "label": "example.com/row"},
            {"name": "rack", "label": "example.com/rack"},
        ]
    }
    own = chart.render({"queue": {"config": config}}).container("fluxqueue-webhook", "webhook")["args"]
    assert flag(own, "--topology-level") == ["row=example.com/row", "rack=example.com/rack"]
    fewer = chart.render({"queue": {"config": {"blockLabel": ""}}}).container("fluxqueue-webhook", "webhook")[
        "args"
    ]
    assert flag(fewer, "--topology-level") == [
        "zone=topology.kubernetes.io/zone",
        "rack=topology.kubernetes.io/rack",
    ]


def test_the_queue_reads_the_prices_that_helm_writes(chart: Chart, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(
        "queue: {config: {prices: {currency: EUR, entries: [{matchLabels: {gpu: a100}, "
        "from: 2027-01-01, perHour: {cpu: 0.021, example.com/x: 3000000}}]}}}"
    )
    written = chart.render(files=[values]).one("ConfigMap", "fluxqueue-queue")["data"]["queue.yaml"]
    (entry,) = msgspec.yaml.decode(written, type=QueueConfig).prices.entries
    assert entry.per_hour == {"cpu": Decimal("0.021"), "example.com/x": Decimal(3_000_000)}
    assert (entry.begins, entry.match_labels) == (datetime(2027, 1, 1, tzinfo=UTC), {"gpu": "a100"})


def test_the_webhook_sees_its_certificate_but_not_the_authority_s_key(default: Rendered) -> None:
    (tls,) = [
        volume["secret"]
        for volume in dict(default.pod_specs())["fluxqueue-webhook"]["volumes"]
        if volume["name"] == "tls"
    ]
    assert {item["key"] for item in tls["items"]} == {"tls.crt", "tls.key", "ca.crt"}
    assert "optional" not in tls, (
        "the kubelet looks for a missing Secret again within seconds, and updates a mounted one within 90 s"
    )


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("", "fluxqueue-webhook.fluxqueue-system.svc"),
        ("https://127.0.0.1:9443", "127.0.0.1"),
        ("https://hooks.example/x", "hooks.example"),
    ],
)
def test_the_webhook_calls_itself_by_the_name_that_the_api_server_uses(
    chart: Chart, url: str, name: str
) -> None:
    rendered = chart.render({"webhook": {"clientUrl": url}})
    assert flag(rendered.container("fluxqueue-webhook", "webhook")["args"], "--server-name") == [name]


def test_the_webhook_gets_the_exempt_namespaces(chart: Chart) -> None:
    rendered = chart.render({"exemptNamespaces": ["cni"]}, namespace="ns")
    arguments = rendered.container("fluxqueue-webhook", "webhook")["args"]
    assert flag(arguments, "--exempt-namespace") == [*names.SYSTEM_NAMESPACES, "ns", "cni"]


def test_a_disruption_budget_exists_where_there_is_more_than_one(chart: Chart, default: Rendered) -> None:
    assert {pdb["metadata"]["name"] for pdb in default.all("PodDisruptionBudget")} == {
        "fluxqueue-webhook",
        "fluxqueue-queue",
        "fluxqueue-postgres",
    }
    single = chart.render(
        {"webhook": {"replicas": 1}, "queue": {"replicas": 1}, "postgres": {"maxUnavailable": 0}}
    )
    (budget,) = single.all("PodDisruptionBudget")
    assert (budget["metadata"]["name"], budget["spec"]["maxUnavailable"]) == ("fluxqueue-postgres", 0)


def test_a_queue_replica_is_ready_before_the_one_it_replaces_ends(default: Rendered) -> None:
    spec = default.one("Deployment", "fluxqueue-queue")["spec"]
    assert spec["replicas"] == 2
    assert spec["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1},
    }


def test_two_queues_are_distinguished_by_their_pods_names(default: Rendered) -> None:
    environment = default.container("fluxqueue-queue", "queue")["env"]
    (name,) = [each["valueFrom"] for each in environment if each["name"] == "POD_NAME"]
    assert name == {"fieldRef": {"fieldPath": "metadata.name"}}


def test_every_program_understands_its_arguments(default: Rendered) -> None:
    """The program's own parser accepts the arguments: an unknown flag would end it at the start."""
    for parse, container in (
        (webhook_main._parser, "webhook"),
        (queue_main._parser, "queue"),
        (fluxion_main._parser, "fluxion"),
    ):
        workload = "fluxqueue-webhook" if container == "webhook" else "fluxqueue-queue"
        program, *arguments = default.container(workload, container)["args"]
        assert program == container
        parse().parse_args(arguments)


def test_helm_test_asks_the_services_with_a_token_for_the_queue_alone(default: Rendered) -> None:
    (pod,) = default.all("Pod")
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    spec = pod["spec"]
    (container,) = spec["containers"]
    assert container["args"][0] == "verify"
    given = verify._parser().parse_args(container["args"][1:])
    ports = {
        service["metadata"]["name"]: service["spec"]["ports"][0]["port"] for service in default.all("Service")
    }
    assert given.webhook == f"https://fluxqueue-webhook.fluxqueue-system.svc:{ports['fluxqueue-webhook']}"
    assert given.queue == f"https://fluxqueue-queue.fluxqueue-system.svc:{ports['fluxqueue-queue']}"
    assert spec["serviceAccountName"] in {
        account["metadata"]["name"] for account in default.all("ServiceAccount")
    }
    assert spec["automountServiceAccountToken"] is False
    tokens = [
        source["serviceAccountToken"]
        for volume in spec["volumes"]
        for source in volume.get("projected", {}).get("sources", [])
    ]
    assert [token["audience"] for token in tokens] == [names.OPERATOR_AUDIENCE]
    secrets = [volume["secret"] for volume in spec["volumes"] if "secret" in volume]
    assert all([item["key"] for item in secret["items"]] == ["ca.crt"] for secret in secrets), (
        "no key of a certificate"
    )
    assert container["image"] == _image(default)


def _database(rendered: Rendered) -> Json:
    environment = rendered.container("fluxqueue-queue", "queue")["env"]
    return dict(next(e["valueFrom"]["secretKeyRef"] for e in environment if e["name"] == "DATABASE_URL"))


def test_the_bundled_database_keeps_its_data_and_its_password(default: Rendered) -> None:
    secret = default.one("Secret", "fluxqueue-postgres")
    assert "@fluxqueue-postgres.fluxqueue-system.svc:5432/" in secret["stringData"]["url"]
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
    rendered = chart.render(
        {"postgres": {"enabled": False}, "database": {"existingSecret": {"name": "corporate", "key": "dsn"}}}
    )
    assert _database(rendered) == {"name": "corporate", "key": "dsn"}
    assert rendered.all("StatefulSet") == rendered.all("Secret") == []


def _environment(rendered: Rendered) -> dict[str, Any]:
    return {
        one["name"]: one.get("value") or one["valueFrom"]
        for one in rendered.container("fluxqueue-queue", "queue")["env"]
    }


def test_a_pooler_and_postgres_itself_are_two_keys_of_one_secret(chart: Chart, default: Rendered) -> None:
    database = {"existingSecret": {"name": "corporate", "directKey": "direct"}}
    environment = _environment(chart.render({"postgres": {"enabled": False}, "database": database}))
    assert environment["DATABASE_URL"] == {"secretKeyRef": {"name": "corporate", "key": "url"}}
    assert environment["DATABASE_DIRECT_URL"] == {"secretKeyRef": {"name": "corporate", "key": "direct"}}
    assert "DATABASE_DIRECT_URL" not in _environment(default)


@pytest.mark.parametrize(("mode", "expected"), [("", "verify-full"), ("verify-ca", "verify-ca")])
def test_the_certificate_of_an_external_server_is_verified(chart: Chart, mode: str, expected: str) -> None:
    tls = {"mode": mode, "caSecret": {"name": "corporate-ca", "key": "bundle.pem"}}
    rendered = chart.render(
        {"postgres": {"enabled": False}, "database": {"existingSecret": {"name": "corporate"}, "tls": tls}}
    )
    environment, pod = _environment(rendered), dict(rendered.pod_specs())["fluxqueue-queue"]
    mount = next(
        m
        for m in rendered.container("fluxqueue-queue", "queue")["volumeMounts"]
        if m["name"] == "postgres-ca"
    )
    volume = next(v for v in pod["volumes"] if v["name"] == "postgres-ca")
    assert environment["PGSSLMODE"] == expected
    assert environment["PGSSLROOTCERT"] == f"{mount['mountPath']}/ca.crt"
    assert mount["readOnly"]
    assert volume["secret"]["secretName"] == "corporate-ca"
    assert volume["secret"]["items"] == [{"key": "bundle.pem", "path": "ca.crt"}]
    assert "postgres-ca" not in [
        m["name"] for m in rendered.container("fluxqueue-queue", "fluxion")["volumeMounts"]
    ]


def test_what_prometheus_wants_is_in_files_of_the_queue_alone(chart: Chart) -> None:
    rendered = chart.render({"queue": {"prometheusSecret": "access"}})
    volume = next(
        each
        for each in dict(rendered.pod_specs())["fluxqueue-queue"]["volumes"]
        if each["name"] == "prometheus"
    )
    assert volume["secret"]["secretName"] == "access"
    mounts = [
        [each["mountPath"] for each in rendered.container("fluxqueue-queue", name)["volumeMounts"]]
        for name in ("queue", "fluxion")
    ]
    assert ["/etc/fluxqueue-prometheus" in each for each in mounts] == [True, False]


def test_a_password_that_is_brought_is_not_made(chart: Chart) -> None:
    rendered = chart.render({"postgres": {"existingSecret": "ours", "tls": {"existingSecret": "ours-tls"}}})
    assert _database(rendered) == {"name": "ours", "key": "url"}
    assert rendered.all("Secret") == []
    volumes = {
        volume["name"]: volume for volume in dict(rendered.pod_specs())["fluxqueue-postgres"]["volumes"]
    }
    assert volumes["tls"]["secret"]["secretName"] == "ours-tls"


def _certificate_names(rendered: Rendered) -> set[str]:
    pair = rendered.one("Secret", "fluxqueue-postgres-tls")["data"]
    served = x509.load_pem_x509_certificate(base64.b64decode(pair["tls.crt"]))
    served.verify_directly_issued_by(x509.load_pem_x509_certificate(base64.b64decode(pair["ca.crt"])))
    return set(
        served.extensions.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(
            x509.DNSName
        )
    )


def test_postgres_has_a_certificate_for_the_name_it_is_called_by(chart: Chart, default: Rendered) -> None:
    assert "fluxqueue-postgres.fluxqueue-system.svc" in _certificate_names(default)
    managed = chart.render({"certificates": {"mode": "certManager"}})
    assert "fluxqueue-postgres-tls" not in {secret["metadata"]["name"] for secret in managed.all("Secret")}
    certificate = managed.one("Certificate", "fluxqueue-postgres-tls")["spec"]
    assert "fluxqueue-postgres.fluxqueue-system.svc" in certificate["dnsNames"]
    longest = chart.render({"fullnameOverride": "a" * 40}, namespace="n" * 63)
    names = [entry for entry in longest.all("Secret") if entry["metadata"]["name"].endswith("-tls")]
    subject = x509.load_pem_x509_certificate(base64.b64decode(names[0]["data"]["tls.crt"])).subject
    assert len(str(subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value)) <= 64, (
        "more is not a valid name"
    )


def test_the_queue_verifies_the_bundled_postgres_in_full(default: Rendered) -> None:
    container = default.container("fluxqueue-queue", "queue")
    environment = {entry["name"]: entry.get("value") for entry in container["env"]}
    (mount,) = [each["mountPath"] for each in container["volumeMounts"] if each["name"] == "postgres-ca"]
    assert (environment["PGSSLMODE"], environment["PGSSLROOTCERT"]) == ("verify-full", f"{mount}/ca.crt")
    (volume,) = [
        each["secret"]
        for each in dict(default.pod_specs())["fluxqueue-queue"]["volumes"]
        if each["name"] == "postgres-ca"
    ]
    assert (volume["secretName"], [item["key"] for item in volume["items"]]) == (
        "fluxqueue-postgres-tls",
        ["ca.crt"],
    )


def test_a_backup_is_made_only_where_it_is_asked_for(chart: Chart, default: Rendered) -> None:
    assert default.all("CronJob") == default.all("PersistentVolumeClaim") == []
    rendered = chart.render({"postgres": {"backup": {"enabled": True, "schedule": "0 * * * *", "keep": 3}}})
    jobs = {job["metadata"]["name"]: job["spec"] for job in rendered.all("CronJob")}
    assert {name: (spec["suspend"], spec["schedule"]) for name, spec in jobs.items()} == {
        "fluxqueue-postgres-backup": (False, "0 * * * *"),
        "fluxqueue-postgres-restore": (True, "0 * * * *"),
    }
    (first,) = rendered.all("Job")
    assert first["metadata"]["name"] == "fluxqueue-postgres-backup-1", (
        "it binds the claim, for which helm --wait waits"
    )
    assert first["spec"] == jobs["fluxqueue-postgres-backup"]["jobTemplate"]["spec"]
    for spec in jobs.values():
        pod = spec["jobTemplate"]["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert pod["automountServiceAccountToken"] is False
        assert (pod["securityContext"]["runAsNonRoot"], pod["securityContext"]["runAsUser"]) == (True, 999)
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["image"] == "postgres:17", "a dump is made by the server's own version"
        assert "memory" in container["resources"]["limits"]
        environment = {entry["name"]: entry.get("value") for entry in container["env"]}
        assert (environment["PGSSLMODE"], environment["KEEP"]) == ("verify-full", "3")
    (claim,) = rendered.all("PersistentVolumeClaim")
    assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert (
        chart.render({"postgres": {"backup": {"enabled": True, "existingClaim": "ours"}}}).all(
            "PersistentVolumeClaim"
        )
        == []
    )


def test_selectors_find_exactly_the_pods_of_their_program(default: Rendered) -> None:
    labels = {
        o["metadata"]["name"]: o["spec"]["template"]["metadata"]["labels"]
        for k in ("Deployment", "StatefulSet")
        for o in default.all(k)
    }
    for service in default.all("Service"):
        selected = {
            name for name, own in labels.items() if service["spec"]["selector"].items() <= own.items()
        }
        assert selected == {service["metadata"]["name"]}


@pytest.mark.parametrize("name", ["fluxqueue-webhook", "fluxqueue-queue"])
def test_replicas_of_one_revision_spread_among_themselves(default: Rendered, name: str) -> None:
    (spread,) = dict(default.pod_specs())[name]["topologySpreadConstraints"]
    assert spread["topologyKey"] == "kubernetes.io/hostname"
    assert spread["matchLabelKeys"] == ["pod-template-hash"], (
        "else the pods of the former revision count during an upgrade"
    )


def test_replicas_prefer_different_zones_and_still_spread_where_nodes_have_none(
    chart: Chart, default: Rendered
) -> None:
    """A second spread constraint would exclude nodes without the zone's label from the first one too."""
    for name in ("fluxqueue-webhook", "fluxqueue-queue"):
        spec = dict(default.pod_specs())[name]
        (term,) = spec["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
        assert term["podAffinityTerm"]["topologyKey"] == "topology.kubernetes.io/zone"
        labels = default.one("Deployment", name)["spec"]["selector"]["matchLabels"]
        assert term["podAffinityTerm"]["labelSelector"]["matchLabels"] == labels
        assert len(spec["topologySpreadConstraints"]) == 1
    ours: Json = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}
    }
    rendered = chart.render({"queue": {"affinity": ours}, "webhook": {"replicas": 1}})
    assert dict(rendered.pod_specs())["fluxqueue-queue"]["affinity"] == ours
    assert "affinity" not in dict(rendered.pod_specs())["fluxqueue-webhook"]


_TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount"


@pytest.mark.parametrize(
    ("scheduler", "with_token"),
    [
        (False, {"fluxqueue-queue/queue", "fluxqueue-webhook/webhook"}),
        (True, {"fluxqueue-queue/queue", "fluxqueue-webhook/webhook", "fluxqueue-scheduler/scheduler"}),
    ],
)
def test_only_who_asks_the_api_server_has_a_token(
    chart: Chart, scheduler: bool, with_token: set[str]
) -> None:
    rendered = chart.render({"scheduler": {"enabled": scheduler}})
    assert all(spec["automountServiceAccountToken"] is False for _, spec in rendered.pod_specs())
    mounting = {
        name
        for name, _, c in _containers(rendered)
        if any(mount["mountPath"] == _TOKEN for mount in c["volumeMounts"])
    }
    assert mounting == with_token


def test_a_token_is_mounted_as_the_api_server_mounts_it(default: Rendered) -> None:
    (volume,) = [
        volume
        for volume in dict(default.pod_specs())["fluxqueue-queue"]["volumes"]
        if volume["name"] == "token"
    ]
    paths = {next(iter(source)): source for source in volume["projected"]["sources"]}
    assert set(paths) == {"serviceAccountToken", "configMap", "downwardAPI"}
    assert paths["configMap"]["configMap"]["name"] == "kube-root-ca.crt"


def test_every_pod_has_the_priority_class_of_the_chart_unless_it_names_one(
    chart: Chart, default: Rendered
) -> None:
    programs = default.one("PriorityClass", "fluxqueue-programs")
    assert programs["value"] == 1_000_000_000
    assert programs["metadata"]["labels"][names.PRIORITY_COUNTS_LABEL] == "false"
    assert {spec["priorityClassName"] for _, spec in default.pod_specs()} == {"fluxqueue-programs"}
    rendered = chart.render({"queue": {"priorityClassName": "ours"}, "priorityClass": {"value": 5}})
    assert {name: spec["priorityClassName"] for name, spec in rendered.pod_specs()} == {
        "fluxqueue-queue": "ours",
        "fluxqueue-webhook": "fluxqueue-programs",
        "fluxqueue-postgres": "fluxqueue-programs",
    }
    without = chart.render({"priorityClass": {"create": False}})
    assert without.all("PriorityClass") == []
    assert not any("priorityClassName" in spec for _, spec in without.pod_specs())
