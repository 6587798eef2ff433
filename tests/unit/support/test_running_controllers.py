from __future__ import annotations

from typing import Any

from support.running_controllers import installed_objects


def thing(kind: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": kind.lower()}, **fields}


def test_what_would_run_in_the_cluster_is_left_out() -> None:
    kinds = [
        "Deployment",
        "ClusterRoleBinding",
        "Service",
        "CustomResourceDefinition",
        "ServiceAccount",
        "PriorityClass",
        "Namespace",
    ]
    documents = [thing(kind, spec={}) for kind in kinds]
    assert [each["kind"] for each in installed_objects(documents, 1, b"")] == [
        "CustomResourceDefinition",
        "ServiceAccount",
        "ClusterRoleBinding",
    ]


def test_webhooks_lead_to_this_machine_and_are_called_for_the_same_objects() -> None:
    hook = {
        "name": "pods",
        "clientConfig": {"service": {"name": "s", "path": "/mutate"}},
        "rules": [{"resources": ["pods"]}],
    }
    (made,) = installed_objects([thing("MutatingWebhookConfiguration", webhooks=[hook])], 4321, b"authority")
    assert made["webhooks"] == [
        {
            "name": "pods",
            "clientConfig": {"url": "https://127.0.0.1:4321/mutate", "caBundle": "YXV0aG9yaXR5"},
            "rules": [{"resources": ["pods"]}],
        }
    ]


def test_a_definition_is_converted_by_nobody() -> None:
    (made,) = installed_objects(
        [thing("CustomResourceDefinition", spec={"conversion": {"strategy": "Webhook"}, "group": "g"})],
        1,
        b"",
    )
    assert made["spec"] == {"group": "g"}
