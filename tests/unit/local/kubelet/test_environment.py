import pytest

from fluxqueue.local.kubelet.environment import MissingSource, PodFacts, container_variables, expand
from fluxqueue.local.kubelet.specs import PodObject, decode_pod

FACTS = PodFacts("127.64.1.7", "127.64.0.1", {"cpu": "8", "memory": "32Gi"})


def pod(container: str) -> PodObject:
    meta = (
        '{"name":"rank-3","namespace":"ns","uid":"u","labels":{"app":"x"},'
        '"annotations":{"batch.kubernetes.io/job-completion-index":"3"}}'
    )
    return decode_pod(
        f'{{"metadata":{meta},"spec":{{"nodeName":"node-1","containers":[{container}]}}}}'.encode()
    )


def variables(container: str, **sources: dict[str, str]) -> dict[str, str]:
    made = pod(container)
    named = {("configmaps", name): texts for name, texts in sources.items()}
    return container_variables(made, made.spec.containers[0], FACTS, {"HOME": "/home"}, named)


def test_references_are_expanded_as_the_kubelet_does() -> None:
    assert expand("$(A)-$$(A)-$(NONE)-$A", {"A": "1"}) == "1-$(A)-$(NONE)-$A"


def test_a_variable_sees_those_before_it() -> None:
    found = variables(
        '{"name":"c","env":[{"name":"A","value":"1"},{"name":"B","value":"$(A)$(C)"},{"name":"C",'
        '"value":"3"}]}'
    )
    assert (found["B"], found["HOME"]) == ("1$(C)", "/home")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("metadata.name", "rank-3"),
        ("metadata.namespace", "ns"),
        ("metadata.annotations['batch.kubernetes.io/job-completion-index']", "3"),
        ("metadata.labels['app']", "x"),
        ("metadata.labels['other']", ""),
        ("metadata.labels", 'app="x"'),
        ("spec.nodeName", "node-1"),
        ("status.podIP", "127.64.1.7"),
        ("status.hostIP", "127.64.0.1"),
    ],
)
def test_fields_of_the_pod_are_variables(path: str, text: str) -> None:
    found = variables(
        f'{{"name":"c","env":[{{"name":"A","valueFrom":{{"fieldRef":{{"fieldPath":"{path}"}}}}}}]}}'
    )
    assert found["A"] == text


@pytest.mark.parametrize(
    ("reference", "text"),
    [
        ('"resource":"limits.cpu"', "2"),
        ('"resource":"limits.cpu","divisor":"1m"', "1500"),
        ('"resource":"requests.cpu"', "2"),
        ('"resource":"limits.memory","divisor":"1Gi"', "32"),
    ],
)
def test_a_resource_is_a_number_and_a_missing_limit_that_of_the_node(reference: str, text: str) -> None:
    env = f'[{{"name":"A","valueFrom":{{"resourceFieldRef":{{{reference}}}}}}}]'
    assert variables(f'{{"name":"c","resources":{{"limits":{{"cpu":"1500m"}}}},"env":{env}}}')["A"] == text


def test_a_whole_config_map_is_variables_with_a_prefix() -> None:
    found = variables(
        '{"name":"c","envFrom":[{"prefix":"P_","configMapRef":{"name":"cm"}}]}', cm={"a": "1", "b c": "2"}
    )
    assert {name: text for name, text in found.items() if name.startswith("P_")} == {"P_a": "1"}


def test_a_missing_key_names_the_variable_unless_it_is_optional() -> None:
    reference = '{"name":"c","env":[{"name":"A","valueFrom":{"configMapKeyRef":{"name":"cm","key":"k"%s}}}]}'
    with pytest.raises(MissingSource, match="variable A: configmap cm has no key k"):
        variables(reference % "", cm={})
    assert "A" not in variables(reference % ',"optional":true')


def test_a_missing_object_and_an_unknown_field_are_errors() -> None:
    with pytest.raises(MissingSource, match="variable A: configmap cm does not exist"):
        variables('{"name":"c","env":[{"name":"A","valueFrom":{"configMapKeyRef":{"name":"cm","key":"k"}}}]}')
    with pytest.raises(MissingSource, match="configmap cm does not exist"):
        variables('{"name":"c","envFrom":[{"configMapRef":{"name":"cm"}}]}')
    with pytest.raises(MissingSource, match="no field spec.secret"):
        variables('{"name":"c","env":[{"name":"A","valueFrom":{"fieldRef":{"fieldPath":"spec.secret"}}}]}')
