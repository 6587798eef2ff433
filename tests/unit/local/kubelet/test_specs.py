import msgspec
import pytest

from fluxqueue.local.kubelet.specs import MOST_POD_BYTES, decode_pod


def refusal(spec: str) -> str:
    return decode_pod(f'{{"spec":{{{spec}}}}}'.encode()).refusal


def test_a_host_path_is_refused_with_a_sentence() -> None:
    assert "volume data is a hostPath" in refusal('"volumes":[{"name":"data","hostPath":{"path":"/"}}]')


@pytest.mark.parametrize(
    "source", ['"persistentVolumeClaim":{"claimName":"c"}', '"nfs":{"server":"s"}', '"csi":{"driver":"d"}']
)
def test_other_volumes_are_refused(source: str) -> None:
    assert "volume data is of a kind" in refusal(f'"volumes":[{{"name":"data",{source}}}]')


def test_a_container_without_a_command_is_refused() -> None:
    assert "container main has neither command nor args" in refusal(
        '"containers":[{"name":"main","image":"app"}]'
    )


def test_a_path_from_variables_is_refused() -> None:
    mount = '{"name":"data","mountPath":"/data","subPathExpr":"$(NAME)"}'
    assert "subPathExpr" in refusal(
        f'"containers":[{{"name":"main","args":["true"],"volumeMounts":[{mount}]}}]'
    )


def test_a_working_dir_that_is_not_absolute_is_refused() -> None:
    said = refusal('"containers":[{"name":"main","args":["true"],"workingDir":"sub/dir"}]')
    assert said == "container main has the workingDir sub/dir, which is not an absolute path"


def test_what_can_run_is_not_refused() -> None:
    volumes = (
        '"volumes":[{"name":"a","emptyDir":{}},{"name":"b","downwardAPI":{"items":[]}},{"name":"c",'
        '"projected":{"sources":[]}}]'
    )
    assert refusal(f'{volumes},"containers":[{{"name":"main","args":["true"]}}]') == ""


def test_a_pod_of_excessive_size_is_not_decoded() -> None:
    with pytest.raises(msgspec.DecodeError, match="more than"):
        decode_pod(b" " * (MOST_POD_BYTES + 1))


def test_the_host_name_is_that_of_the_spec_or_the_name() -> None:
    assert decode_pod(b'{"metadata":{"name":"job-0-abc"},"spec":{"hostname":"job-0"}}').hostname == "job-0"
    assert decode_pod(b'{"metadata":{"name":"plain"}}').hostname == "plain"
