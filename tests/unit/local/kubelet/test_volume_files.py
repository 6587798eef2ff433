import pytest

from fluxqueue.local.kubelet.environment import MissingSource, PodFacts
from fluxqueue.local.kubelet.specs import PodObject, decode_pod
from fluxqueue.local.kubelet.volume_files import TokenKey, file_modes, named_objects, tokens_of, volume_files

FACTS = PodFacts("127.64.1.7", "127.64.0.1")
TOKEN = TokenKey("", 3607)


def pod(volume: str, container: str = '{"name":"c"}') -> PodObject:
    spec = f'"volumes":[{{"name":"v",{volume}}}],"containers":[{container}]'
    return decode_pod(f'{{"metadata":{{"name":"p","namespace":"ns"}},"spec":{{{spec}}}}}'.encode())


def files(volume: str, **secrets: dict[str, bytes]) -> dict[str, bytes] | None:
    made = pod(volume)
    assert made.spec.volumes is not None
    return volume_files(
        made,
        FACTS,
        made.spec.volumes[0],
        {("secrets", name): data for name, data in secrets.items()},
        {TOKEN: b"t"},
    )


def test_each_key_is_a_file_or_the_chosen_ones_are() -> None:
    assert files('"secret":{"secretName":"s"}', s={"a": b"1", "b": b"2"}) == {"a": b"1", "b": b"2"}
    assert files(
        '"secret":{"secretName":"s","items":[{"key":"a","path":"x/y"}]}', s={"a": b"1", "b": b"2"}
    ) == {"x/y": b"1"}


def test_what_is_missing_is_named_unless_it_is_optional() -> None:
    with pytest.raises(MissingSource, match="secret s does not exist, but volume v is mounted from it"):
        files('"secret":{"secretName":"s"}')
    with pytest.raises(MissingSource, match="secret s has no key k"):
        files('"secret":{"secretName":"s","items":[{"key":"k","path":"k"}]}', s={})
    assert files('"secret":{"secretName":"s","optional":true}') == {}


def test_a_projected_volume_has_the_files_of_all_sources() -> None:
    token = '{"serviceAccountToken":{"path":"token","expirationSeconds":3607}}'
    field = '{"downwardAPI":{"items":[{"path":"name","fieldRef":{"fieldPath":"metadata.name"}}]}}'
    secret = '{"secret":{"name":"s"}}'
    assert files(f'"projected":{{"sources":[{token},{field},{secret}]}}', s={"a": b"1"}) == {
        "token": b"t",
        "name": b"p",
        "a": b"1",
    }


def test_an_empty_folder_has_no_files_of_its_own() -> None:
    assert files('"emptyDir":{}') is None


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a/../../x"])
def test_no_file_is_outside_the_volume(path: str) -> None:
    with pytest.raises(MissingSource, match="not a file below it"):
        files(f'"secret":{{"secretName":"s","items":[{{"key":"a","path":"{path}"}}]}}', s={"a": b"1"})


@pytest.mark.parametrize(
    ("volume", "modes"),
    [
        ('"secret":{"secretName":"s"}', (0o644, {})),
        ('"configMap":{"name":"s","defaultMode":256}', (0o400, {})),
        (
            '"configMap":{"name":"s","defaultMode":256,"items":[{"key":"k","path":"p","mode":493}]}',
            (0o400, {"p": 0o755}),
        ),
        (
            '"projected":{"defaultMode":288,"sources":[{"downwardAPI":{"items":[{"path":"d","mode":256}]}}]}',
            (0o440, {"d": 0o400}),
        ),
    ],
)
def test_files_have_the_modes_of_their_volume(volume: str, modes: tuple[int, dict[str, int]]) -> None:
    made = pod(volume).spec.volumes
    assert made is not None
    assert file_modes(made[0]) == modes


def test_all_objects_that_a_pod_names_are_known() -> None:
    env = (
        '"env":[{"name":"A","valueFrom":{"secretKeyRef":{"name":"s","key":"k"}}}],'
        '"envFrom":[{"configMapRef":{"name":"c"}}]'
    )
    made = pod('"configMap":{"name":"m"}', f'{{"name":"c",{env}}}')
    assert named_objects(made) == {("configmaps", "m"), ("configmaps", "c"), ("secrets", "s")}
    assert tokens_of(made.spec.volumes or ()) == set()
