"""A trial rendering of a MiniCluster, so that an accepted MiniCluster can also be released.

A MiniCluster is rendered again when it has its nodes, in a pass that releases other workloads too, and when
no person is watching. So it is rendered once at admission, complete with scripts, configuration of all hosts
and the pod with Flux. What cannot be rendered, or is larger than the API server stores, is refused while the
person still reads the message. Only the names of the future nodes differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from fluxqueue.api.miniclusters import MiniCluster
from fluxqueue.api.pods import Pod, PodSpec
from fluxqueue.minicluster.broker import Share
from fluxqueue.minicluster.injection import inject
from fluxqueue.minicluster.injection_settings import InvalidInjection
from fluxqueue.minicluster.render import FluxCluster, objects

__all__ = ["rendering_problems"]

_IMAGE = "fluxqueue"
_LARGEST_CONFIG_MAP = 900_000
"""In bytes. The API server accepts 1 MiB, and brokers with different shares need more entries."""
_LARGEST_ANNOTATIONS = 200_000
"""In bytes. The API server accepts 256 KiB, and release and Job controller add theirs."""
_LARGEST_OBJECT = 1_000_000
_SUFFIX = "-xxxxx"
"""In place of the suffix that the API server generates for ``generateName``."""

Json = dict[str, Any]


def rendering_problems(minicluster: MiniCluster) -> Iterator[str]:
    """Yield what prevents a MiniCluster from being rendered.

    Parameters
    ----------
    minicluster
        A MiniCluster within its limits and without contradictions.

    Yields
    ------
    str
        One sentence; none if everything can be rendered.
    """
    meta = minicluster.metadata
    if not meta.name:
        minicluster = msgspec.structs.replace(
            minicluster, metadata=msgspec.structs.replace(meta, name=f"{meta.generate_name or 'x'}{_SUFFIX}")
        )
    try:
        rendered = objects(
            minicluster, certificate=None, image=_IMAGE, shares=[Share(1)] * minicluster.spec.size
        )
        problem = _too_large(rendered) or _no_pods(minicluster, rendered)
    except InvalidInjection as error:
        problem = f"spec: {error}"
    except Exception as error:  # any error concerns this object and must not occur at its release
        problem = (
            f"spec cannot be rendered ({type(error).__name__}: {error}): "
            "correct it until fluxqueue minicluster render prints it"
        )
    if problem:
        yield problem


def _too_large(rendered: list[Json]) -> str:
    for each in rendered:
        if each["kind"] == "ConfigMap":
            written = sum(len(text.encode(errors="surrogatepass")) for text in each["data"].values())
            if written > _LARGEST_CONFIG_MAP:
                return (
                    f"spec makes {written} bytes of scripts and configuration, "
                    f"and a ConfigMap holds {_LARGEST_CONFIG_MAP}: "
                    "put what is large into an image or a volume"
                )
        if (size := len(msgspec.json.encode(each))) > _LARGEST_OBJECT and each["kind"] != "ConfigMap":
            return (
                f"spec makes a {each['kind']} of {size} bytes, "
                f"and the API server stores {_LARGEST_OBJECT}: make it smaller"
            )
    return ""


def _no_pods(minicluster: MiniCluster, rendered: list[Json]) -> str:
    """Return why no pods could be created from the rendered templates,
    as far as that is known without the API server.
    """
    template = rendered[-1]["spec"]["template"]
    annotations = sum(
        len(key) + len(value.encode(errors="surrogatepass"))
        for key, value in template["metadata"]["annotations"].items()
    )
    if annotations > _LARGEST_ANNOTATIONS:
        return (
            f"spec makes {annotations} bytes of annotations, "
            f"and a pod may have {_LARGEST_ANNOTATIONS}: make them smaller"
        )
    try:
        msgspec.convert(inject(template["spec"], FluxCluster.of(minicluster, _IMAGE).injection), PodSpec)
    except msgspec.ValidationError as error:
        return f"spec makes no pod: {error}: correct it there"
    try:
        for each in rendered:
            if each["kind"] == "Pod":
                msgspec.convert(each, Pod)
    except msgspec.ValidationError as error:
        return f"spec.services makes no pod: {error}: correct it there"
    return ""
