import base64
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.scripts import script_head

from fluxqueue.kube.kubeconfig import connection, impersonation
from fluxqueue.kube.kubeconfig_files import InvalidKubeconfig


def config(
    *,
    cluster: dict[str, Any] | None = None,
    user: dict[str, Any] | None = None,
    name: str = "home",
    current: str = "home",
    namespace: str = "",
) -> dict[str, Any]:
    context = {"cluster": name, "user": name, **({"namespace": namespace} if namespace else {})}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": current,
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}:6443", **(cluster or {})}}],
        "contexts": [{"name": name, "context": context}],
        "users": [{"name": name, "user": user or {"token": f"token-of-{name}"}}],
    }


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., str]:
    def write(document: object, name: str = "config") -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
        return str(path)

    return write


@pytest.mark.parametrize(
    ("user", "shown"),
    [
        ({"token": "geheim\n"}, "Bearer geheim"),
        ({"token": "geheim\nzwei"}, None),
        ({"token": "gehe\x00im"}, None),
    ],
)
def test_a_token_is_a_header_or_refused_without_being_shown(
    user: dict[str, Any], shown: str | None, written: Callable[..., str]
) -> None:
    path = written(config(user=user))
    if shown is not None:
        assert connection(path).headers == {"Authorization": shown}
        return
    with pytest.raises(InvalidKubeconfig, match="token has characters that no token has") as caught:
        connection(path)
    assert "gehe" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"contexts": 5}, "contexts is no list"),
        ({"users": [{"name": "home", "user": {"exec": "aws"}}]}, "the exec section is no mapping"),
    ],
)
def test_a_section_of_another_form_is_named(
    change: dict[str, Any], message: str, written: Callable[..., str]
) -> None:
    with pytest.raises(InvalidKubeconfig, match=message):
        connection(written(config() | change))


def test_reads_server_token_and_namespace_of_the_current_context(written: Callable[..., str]) -> None:
    chosen = connection(written(config(namespace="lab")))
    assert (chosen.server, chosen.namespace, chosen.context) == ("https://home:6443", "lab", "home")
    assert chosen.headers == {"Authorization": "Bearer token-of-home"}


def test_the_first_file_that_sets_a_value_wins(written: Callable[..., str]) -> None:
    first, second = config(name="a", current="b"), config(name="b", current="a")
    second["clusters"].append({"name": "a", "cluster": {"server": "https://ignored:6443"}})
    paths = os.pathsep.join(
        [written(first, "one"), written("", "empty"), "/nonexistent/three", written(second, "two")]
    )
    assert connection(environ={"KUBECONFIG": paths}).server == "https://b:6443"
    assert connection(context="a", environ={"KUBECONFIG": paths}).server == "https://a:6443"


def test_falls_back_to_the_home_folder(written: Callable[..., str], tmp_path: Path) -> None:
    written(config(), ".kube/config")
    assert connection(environ={"HOME": str(tmp_path)}).server == "https://home:6443"


def test_relative_paths_count_from_the_file_they_stand_in(
    written: Callable[..., str], tmp_path: Path
) -> None:
    for name in ("ca.crt", "me.crt", "me.key", "token"):
        (tmp_path / "sub").mkdir(exist_ok=True)
        (tmp_path / "sub" / name).write_text(f"{name}\n")
    user = {"client-certificate": "me.crt", "client-key": "me.key", "tokenFile": "token"}
    chosen = connection(written(config(cluster={"certificate-authority": "ca.crt"}, user=user), "sub/config"))
    assert (chosen.ca_pem, chosen.client_cert_pem, chosen.client_key_pem) == (
        b"ca.crt\n",
        b"me.crt\n",
        b"me.key\n",
    )
    assert chosen.headers["Authorization"] == "Bearer token"


def test_inline_data_wins_over_files(written: Callable[..., str]) -> None:
    data = base64.b64encode(b"inline").decode()
    cluster = {
        "certificate-authority-data": data,
        "certificate-authority": "/nonexistent",
        "tls-server-name": "api",
        "proxy-url": "http://p:1",
    }
    chosen = connection(written(config(cluster=cluster)))
    assert (chosen.ca_pem, chosen.tls_server_name, chosen.proxy_url) == (b"inline", "api", "http://p:1")


def test_password_and_impersonation_become_headers(written: Callable[..., str]) -> None:
    chosen = connection(written(config(user={"username": "ada", "password": "x", "as": "root"})))
    assert chosen.headers == {"Authorization": f"Basic {base64.b64encode(b'ada:x').decode()}"}
    assert chosen.impersonation == (("Impersonate-User", "root"),)
    user = {
        "token": "t",
        "as": "bob",
        "as-uid": "7",
        "as-groups": ["a", "b"],
        "as-user-extra": {"ex/scope": ["x", "y"]},
    }
    path = written(config(user=user))
    assert connection(path).impersonation == impersonation(path)
    assert impersonation(path) == (
        ("Impersonate-User", "bob"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Extra-ex%2Fscope", "x"),
        ("Impersonate-Extra-ex%2Fscope", "y"),
    )
    with pytest.raises(InvalidKubeconfig, match="as-groups is no list"):
        connection(written(config(user={"as": "bob", "as-groups": "admins"})))
    assert impersonation(environ={"HOME": "/nonexistent"}) == ()


def test_secrets_do_not_appear_in_the_representation(written: Callable[..., str]) -> None:
    assert "token-of-home" not in repr(connection(written(config())))


def _plugin(tmp_path: Path, body: str) -> str:
    script = tmp_path / "login"
    script.write_text(f"{script_head()}import json, os, sys\n{body}\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return "./login"


def test_asks_an_exec_plugin_and_tells_it_the_cluster(written: Callable[..., str], tmp_path: Path) -> None:
    command = _plugin(
        tmp_path,
        "info = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n"
        "token = '|'.join([info['apiVersion'], info['spec']['cluster']['server'], "
        "os.environ['WHO'], sys.argv[1]])\n"
        "print(json.dumps({'kind': 'ExecCredential', 'status': {'token': token, "
        "'clientCertificateData': 'C', 'clientKeyData': 'K'}}))",
    )
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": command,
        "args": ["now"],
        "env": [{"name": "WHO", "value": "ada"}],
        "provideClusterInfo": True,
        "interactiveMode": "Never",
    }
    chosen = connection(written(config(user={"exec": plugin})))
    assert (
        chosen.headers["Authorization"] == "Bearer client.authentication.k8s.io/v1|https://home:6443|ada|now"
    )
    assert (chosen.client_cert_pem, chosen.client_key_pem) == (b"C", b"K")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param("sys.exit(4)", "login failed with exit code 4", id="it fails"),
        pytest.param("print('hello')", "did not print an ExecCredential", id="it prints something else"),
        pytest.param(
            "print(json.dumps({'status': None}))", "did not print an ExecCredential", id="it prints no status"
        ),
    ],
)
def test_names_the_problem_of_an_exec_plugin(
    body: str, message: str, written: Callable[..., str], tmp_path: Path
) -> None:
    plugin = {"command": _plugin(tmp_path, body), "interactiveMode": "Never"}
    with pytest.raises(InvalidKubeconfig, match=message):
        connection(written(config(user={"exec": plugin})))


def test_says_how_to_install_a_missing_exec_plugin(written: Callable[..., str]) -> None:
    plugin = {"command": "no-such-program-here", "installHint": "get it\nfrom us"}
    with pytest.raises(InvalidKubeconfig, match="executable no-such-program-here not found; get it from us"):
        connection(written(config(user={"exec": plugin})))


def test_a_pod_uses_its_service_account(tmp_path: Path) -> None:
    for name, text in (("token", "t\n"), ("namespace", "lab"), ("ca.crt", "CA")):
        (tmp_path / name).write_text(text)
    environ = {"HOME": str(tmp_path), "KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    chosen = connection(environ=environ, service_account=tmp_path)
    assert (chosen.server, chosen.namespace, chosen.ca_pem) == ("https://[fd00::1]:6443", "lab", b"CA")
    assert chosen.headers == {"Authorization": "Bearer t"}


@pytest.mark.parametrize(
    ("document", "context", "message"),
    [
        pytest.param(config(), "away", 'context "away" does not exist', id="no such context"),
        pytest.param(config(current=""), None, "no current context is set", id="no current context"),
        pytest.param(
            {**config(), "clusters": []},
            None,
            'cluster "home" of context "home" does not exist',
            id="no such cluster",
        ),
        pytest.param(
            {**config(), "users": None},
            None,
            'user "home" of context "home" does not exist',
            id="no such user",
        ),
        pytest.param(
            {**config(), "clusters": [{"name": "home", "cluster": None}]},
            None,
            "has no server",
            id="no server",
        ),
        pytest.param(
            {**config(), "clusters": ["home"]},
            None,
            "every entry of clusters needs a name",
            id="entries without names",
        ),
        pytest.param("a: [", None, "error loading config file", id="not YAML"),
        pytest.param("just words", None, "it is not a mapping", id="not a mapping"),
        pytest.param(
            config(cluster={"certificate-authority-data": "%%%"}),
            None,
            "certificate-authority-data is not base64",
            id="not base64",
        ),
        pytest.param(
            config(cluster={"certificate-authority": "nowhere"}),
            None,
            "unable to read certificate-authority nowhere",
            id="no such file",
        ),
        pytest.param(
            config(user={"client-certificate-data": "QQ=="}), None, "without its key", id="half a pair"
        ),
        pytest.param(
            config(user={"exec": {"args": []}}), None, "the exec section has no command", id="exec of nothing"
        ),
        pytest.param(
            config(user={"auth-provider": {"name": "gone"}}),
            None,
            'user of context "home"',
            id="an old auth-provider",
        ),
    ],
)
def test_names_the_problem_of_a_file(
    document: object, context: str | None, message: str, written: Callable[..., str]
) -> None:
    with pytest.raises(InvalidKubeconfig) as caught:
        connection(written(document), context)
    assert message in str(caught.value)


def test_a_file_that_was_named_must_exist() -> None:
    with pytest.raises(InvalidKubeconfig, match="stat /nonexistent: no such file or directory"):
        connection("/nonexistent")


def test_without_any_file_says_where_it_looked_and_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidKubeconfig, match=f"no kubeconfig at {tmp_path}/.kube/config: give --kubeconfig FILE"
    ):
        connection(environ={"HOME": str(tmp_path)})


def test_json_is_understood_too(written: Callable[..., str]) -> None:
    assert connection(written(json.dumps(config()))).server == "https://home:6443"
