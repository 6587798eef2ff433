"""`fluxqueue minicluster`: renders MiniClusters without a cluster, and creates CURVE certificates.

``render`` reads MiniClusters and annotated Jobs from a file. It prints all objects that the controller would
apply, and the pods that the Job controller and admission would create. It uses the same functions with an
assumed allocation. The certificate in the output is new and belongs to no cluster. ``curve`` creates a
certificate as the controller does, or checks one as a broker would.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import sys
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fluxqueue.api.miniclusters import MiniCluster
    from fluxqueue.certs.curve import Certificate
    from fluxqueue.minicluster.broker import Share

__all__ = ["main", "written"]

_FAILED = 1
_TOKEN = "made-when-applied"  # noqa: S105 shown in number of the REST service's token

Json = dict[str, Any]


class _Refused(Exception):
    """The command cannot be carried out; the message is for the user."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command of ``fluxqueue minicluster``.

    Parameters
    ----------
    argv
        Arguments after ``fluxqueue minicluster``; by default those of the process.

    Returns
    -------
    int
        0; 1 if a MiniCluster is invalid or a certificate would not be accepted; 2 for an invalid command
        line.
    """
    arguments = _parser().parse_args(sys.argv[1:] if argv is None else argv)
    try:
        return int(arguments.run(arguments))
    except _Refused as refusal:
        print(f"fluxqueue minicluster: {refusal}", file=sys.stderr)
        return _FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fluxqueue minicluster", description="MiniClusters without a cluster."
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    render = commands.add_parser(
        "render", help="print every object of the MiniClusters and annotated Jobs in a file"
    )
    render.add_argument(
        "file", type=Path, metavar="FILE", help="YAML, as it would be applied; - for standard input"
    )
    render.add_argument(
        "--cores", type=int, help="cores of each broker (default: what its container asks for, else 1)"
    )
    render.add_argument("--gpus", type=int, help="GPUs of each broker (default: what its container asks for)")
    render.add_argument(
        "--certificate", type=Path, metavar="CERT", help="use this certificate instead of a new one"
    )
    render.add_argument(
        "--image", default="fluxqueue-queue", help="image of the REST service (default: %(default)s)"
    )
    render.set_defaults(run=_render)
    curve = commands.add_parser("curve", help="create a CURVE certificate, or check one")
    curve.add_argument("name", nargs="?", metavar="NAME", help="create a certificate of this name")
    curve.add_argument(
        "--output", type=Path, metavar="FILE", help="write it to this new file, readable only by its owner"
    )
    curve.add_argument(
        "--check",
        type=Path,
        metavar="FILE",
        help="read a certificate as a broker would, permissions included",
    )
    curve.set_defaults(run=_curve)
    return parser


def _render(arguments: argparse.Namespace) -> int:
    for option in ("cores", "gpus"):
        if (value := getattr(arguments, option)) is not None and value < (option == "cores"):
            raise _Refused(f"--{option} {value}: a broker has at least {int(option == 'cores')}")
    documents = _documents(arguments.file)
    rendered = [
        each
        for number, document in enumerate(documents, start=1)
        for each in _objects(document, number, arguments)
    ]
    if not rendered:
        raise _Refused(
            f"{arguments.file} holds neither a MiniCluster nor a Job annotated with fluxqueue/minicluster: "
            '"true"'
        )
    print(written(rendered), end="")
    return 0


def _documents(path: Path) -> list[Json]:
    import yaml

    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text()
        documents = list(yaml.safe_load_all(text))
    except (OSError, UnicodeDecodeError) as error:
        raise _Refused(
            f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is not text'}"
        ) from None
    except yaml.YAMLError as error:
        raise _Refused(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    return [each for each in documents if isinstance(each, dict)]


def _objects(document: Json, number: int, arguments: argparse.Namespace) -> Iterable[Json]:
    kind = document.get("kind")
    if kind == "MiniCluster":
        return _minicluster_objects(document, number, arguments)
    if kind == "Job" and _annotations(document).get("fluxqueue/minicluster") == "true":
        return _job_objects(document, number, arguments)
    return []


def _minicluster_objects(document: Json, number: int, arguments: argparse.Namespace) -> Iterable[Json]:
    import msgspec

    from fluxqueue.api.miniclusters import MiniCluster
    from fluxqueue.minicluster.pods import pod_template
    from fluxqueue.minicluster.render import FluxCluster, admitted_pods, objects
    from fluxqueue.minicluster.rules import find_problems

    try:
        cluster = msgspec.convert(_identified(document), MiniCluster, strict=False)
    except msgspec.ValidationError as error:
        raise _Refused(f"document {number} is not a MiniCluster: {error}") from None
    findings = find_problems(cluster)
    for warning in findings.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    if findings.errors:
        raise _Refused(f"MiniCluster {cluster.metadata.name} is not valid: {'; '.join(findings.errors)}")
    whole = FluxCluster.of(cluster, arguments.image)
    template = pod_template(whole.identity, cluster.spec, whole.injection)
    rendered = objects(
        cluster,
        certificate=_certificate(cluster, arguments),
        image=arguments.image,
        shares=[_share(cluster.metadata.name, template["spec"], whole.injection.runner, arguments)]
        * cluster.spec.size,
        rest_token=_TOKEN,
    )
    return [*rendered, *admitted_pods(cluster, arguments.image)]


def _job_objects(document: Json, number: int, arguments: argparse.Namespace) -> Iterable[Json]:
    from fluxqueue.minicluster.injection import inject
    from fluxqueue.minicluster.injection_settings import InvalidInjection, annotated_minicluster
    from fluxqueue.minicluster.render import FluxCluster, annotated_objects

    document = _identified(document)
    meta, template = document["metadata"], document.get("spec", {}).get("template", {})
    name, size = meta["name"], document.get("spec", {}).get("completions", 1)
    spec = template.get("spec") or {}
    try:
        runner = spec["containers"][0]["name"]
        cluster = annotated_minicluster(
            name, meta["namespace"], meta["uid"], size, _annotations(document), runner
        )
        settings = FluxCluster.of_job(cluster).injection
        pods = [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "generateName": f"{name}-{index}-",
                    "namespace": meta["namespace"],
                    **(template.get("metadata") or {}),
                },
                "spec": inject({**spec, "hostname": f"{name}-{index}"}, settings, index),
            }
            for index in range(size)
        ]
    except InvalidInjection as problem:
        raise _Refused(f"Job {name}: {problem}") from None
    except (KeyError, IndexError, TypeError):
        raise _Refused(
            f"document {number} is not a Job with containers and a number of completions"
        ) from None
    shares = [_share(name, spec, runner, arguments)] * size
    certificate = _certificate(cluster, arguments)
    return [
        *annotated_objects(
            cluster, certificate=certificate, shares=shares, own_subdomain="subdomain" in spec
        ),
        *pods,
    ]


def _share(name: str, spec: Json, runner: str, arguments: argparse.Namespace) -> Share:
    """Return the cores and GPUs of each broker: from the command line,
    or else from its container's requests.
    """
    import msgspec

    from fluxqueue.api.pods import Container, PodSpec
    from fluxqueue.api.requests import InvalidRequest, pod_requests
    from fluxqueue.minicluster.broker import Share, share_of

    container = next(each for each in spec["containers"] if each["name"] == runner)
    try:
        requested = share_of(
            pod_requests(PodSpec(containers=[msgspec.convert(container, Container, strict=False)]))
        )
    except (InvalidRequest, msgspec.ValidationError) as problem:
        raise _Refused(f"{name}: {problem}") from None
    return Share(
        arguments.cores or requested.cores, requested.gpus if arguments.gpus is None else arguments.gpus
    )


def _certificate(cluster: MiniCluster, arguments: argparse.Namespace) -> Certificate:
    from fluxqueue.certs.curve import InvalidCertificate, make, read, read_file

    try:
        if arguments.certificate is not None:
            return read_file(arguments.certificate)
        if cluster.spec.flux.curve_cert:
            return read(cluster.spec.flux.curve_cert)
    except InvalidCertificate as problem:
        raise _Refused(str(problem)) from None
    return make(cluster.metadata.name, dt.datetime.now(dt.UTC))


def _identified(document: Json) -> Json:
    """Return the document with a namespace and a uid derived from its name,
    which an object outside a cluster lacks.
    """
    meta = {"name": "", "namespace": "default", **(document.get("metadata") or {})}
    meta.setdefault(
        "uid",
        str(uuid.uuid5(uuid.NAMESPACE_URL, f"{document.get('kind')}/{meta['namespace']}/{meta['name']}")),
    )
    return {**document, "metadata": meta}


def _annotations(document: Json) -> dict[str, str]:
    """Return the annotations of a Job and its template, merged as the webhook does."""
    template = document.get("spec", {}).get("template", {}).get("metadata") or {}
    own = (document.get("metadata") or {}).get("annotations") or {}
    return {**own, **(template.get("annotations") or {})}


def _curve(arguments: argparse.Namespace) -> int:
    from fluxqueue.certs.curve import InvalidCertificate, make, read_file

    if (arguments.name is None) == (arguments.check is None):
        raise _Refused("give NAME to create a certificate, or --check FILE to check one")
    try:
        if arguments.check is not None:
            certificate = read_file(arguments.check)
            print(
                f"{arguments.check} is a certificate that brokers would use; its name is {certificate.name}"
            )
            return 0
        text = make(arguments.name, dt.datetime.now(dt.UTC)).text
    except InvalidCertificate as problem:
        raise _Refused(str(problem)) from None
    if arguments.output is None:
        print(text, end="")
        return 0
    try:
        descriptor = os.open(arguments.output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise _Refused(f"{arguments.output} cannot be written: {error.strerror}") from None
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    return 0


def written(objects: Sequence[Json]) -> str:
    """Return objects as YAML, with texts of several lines as literal blocks, so that scripts are readable."""
    import yaml

    class Readable(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]  # the C one where libyaml is
        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: Any, value: str) -> Any:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Readable.add_representer(str, text)
    return str(yaml.dump_all(objects, Dumper=Readable, sort_keys=False, width=2**20))
