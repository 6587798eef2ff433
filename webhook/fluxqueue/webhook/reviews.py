"""AdmissionReviews as they come in, and the answers as they go out.

The API server sends the whole object, already defaulted and in its canonical form. We read the few fields that a decision needs, as
partial structs, and leave the rest unread: what is not read is not written either, so a field of a newer Kubernetes survives. Jobs and Pods
are decoded when they are created, because there is nothing to decide about them later and a DELETE has none; objects of our own kinds
stay as they came until `fluxqueue.webhook.validation` knows what to decode them as.

A review that cannot be read raises `MalformedReview`; the server answers it with HTTP 400 and the sentence. The API server treats
that as a webhook that failed, so ``failurePolicy`` decides, and the sentence reaches the person through kubectl.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from fluxqueue.api.objects import ObjectMeta, Part, SchedulingGate
from fluxqueue.webhook.decisions import Decision

__all__ = [
    "MalformedReview",
    "Review",
    "ReviewedJob",
    "ReviewedJobSpec",
    "ReviewedPod",
    "ReviewedPodSpec",
    "ReviewedTemplate",
    "ReviewedTemplateSpec",
    "decode",
    "encode_answer",
    "read_review",
]

API_VERSION = "admission.k8s.io/v1"
_CODES = {"Forbidden": 403, "Invalid": 422}

_T = TypeVar("_T")


class MalformedReview(ValueError):
    """The body is not an AdmissionReview that can be answered; the message says why."""


class ReviewedTemplateSpec(Part, frozen=True):
    """What admission reads of a pod template's spec."""

    node_name: str | None = None


class ReviewedTemplate(Part, frozen=True):
    """What admission reads of a Job's pod template."""

    metadata: ObjectMeta | None = None
    spec: ReviewedTemplateSpec = ReviewedTemplateSpec()


class ReviewedJobSpec(Part, frozen=True):
    """What admission reads of a Job's spec."""

    template: ReviewedTemplate
    suspend: bool | None = None
    managed_by: str | None = None
    completion_mode: str | None = None
    completions: int | None = None
    parallelism: int | None = None


class ReviewedJob(Part, frozen=True):
    """What admission reads of a Job."""

    metadata: ObjectMeta
    spec: ReviewedJobSpec


class ReviewedPodSpec(Part, frozen=True):
    """What admission reads of a pod's spec; the affinity is decoded only where a pod is pinned."""

    node_name: str | None = None
    scheduling_gates: list[SchedulingGate] | None = None
    affinity: msgspec.Raw = msgspec.Raw(b"")

    def gated_by(self, name: str) -> bool:
        """Whether the gate of this name is on the pod."""
        return any(gate.name == name for gate in self.scheduling_gates or ())


class ReviewedPod(Part, frozen=True):
    """What admission reads of a pod."""

    metadata: ObjectMeta
    spec: ReviewedPodSpec


class _GroupVersionKind(Part, frozen=True):
    group: str = ""
    version: str = ""
    kind: str = ""


class _UserInfo(Part, frozen=True):
    username: str = ""


class _Request(Part, frozen=True):
    uid: str
    kind: _GroupVersionKind
    operation: str
    sub_resource: str | None = None
    namespace: str | None = None
    name: str | None = None
    user_info: _UserInfo = _UserInfo()
    dry_run: bool | None = None
    object: msgspec.Raw = msgspec.Raw(b"")
    old_object: msgspec.Raw = msgspec.Raw(b"")


class _Envelope(Part, frozen=True):
    api_version: str
    kind: str
    request: _Request


class Review(msgspec.Struct, frozen=True, kw_only=True):
    """One question of the API server.

    Attributes
    ----------
    uid
        Of the request, to be repeated in the answer; the object has none yet.
    kind
        Kind of the object, for example ``Job``; ``group`` is its API group, empty for the core's.
    object
        The Job or Pod to be created; None for every other kind, operation and subresource.
    requester
        User name of whoever asks.
    document, former
        The object as it would be and as it was, as they came; empty where there is none.
    """

    uid: str
    operation: str
    kind: str
    namespace: str = ""
    requester: str = ""
    dry_run: bool = False
    object: ReviewedJob | ReviewedPod | None = None
    group: str = ""
    name: str = ""
    subresource: str = ""
    document: msgspec.Raw = msgspec.Raw(b"")
    former: msgspec.Raw = msgspec.Raw(b"")

    def describe(self) -> str:
        """The object's kind, namespace (if any) and name as an error names it; ``name-*`` while the name is still to be made."""
        meta = self.object.metadata if self.object is not None else ObjectMeta(name=self.name)
        name = meta.name or (f"{meta.generate_name}*" if meta.generate_name else "*")
        return f"{self.kind} {self.namespace}/{name}" if self.namespace else f"{self.kind} {name}"


_envelopes = msgspec.json.Decoder(_Envelope)
_decoders: dict[tuple[str, str], msgspec.json.Decoder[Any]] = {
    ("batch", "Job"): msgspec.json.Decoder(ReviewedJob),
    ("", "Pod"): msgspec.json.Decoder(ReviewedPod),
}


def read_review(body: bytes) -> Review:
    """Read an AdmissionReview of admission.k8s.io/v1.

    Parameters
    ----------
    body
        The POST's body, JSON.

    Returns
    -------
    Review
        With its object decoded when it is a Job or Pod to be created.

    Raises
    ------
    MalformedReview
        Not JSON, not a review, no request uid, another version, or an object whose fields have the wrong type. Never another exception.
    """
    envelope = decode(_envelopes, body, "AdmissionReview")
    if envelope.kind != "AdmissionReview" or envelope.api_version != API_VERSION:
        raise MalformedReview(
            f"apiVersion {envelope.api_version!r}, kind {envelope.kind!r} is not understood: send an AdmissionReview of {API_VERSION}"
        )
    request = envelope.request
    if not request.uid:
        raise MalformedReview("request.uid is empty: it is what the answer refers to")
    decoder = _decoders.get((request.kind.group, request.kind.kind))
    known = decoder is not None and request.operation == "CREATE" and not request.sub_resource
    return Review(
        uid=request.uid,
        operation=request.operation,
        kind=request.kind.kind,
        namespace=request.namespace or "",
        requester=request.user_info.username,
        dry_run=bool(request.dry_run),
        object=decode(decoder, request.object, f"object of kind {request.kind.kind}") if known and decoder is not None else None,
        group=request.kind.group,
        name=request.name or "",
        subresource=request.sub_resource or "",
        document=request.object,
        former=request.old_object,
    )


def decode(decoder: msgspec.json.Decoder[_T], body: bytes | msgspec.Raw, what: str) -> _T:
    """Decode a part of a review; `MalformedReview` if it is not what it should be."""
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedReview(f"the {what} cannot be read: {error}") from None
    except RecursionError:
        raise MalformedReview(f"the {what} cannot be read: it is nested too deeply") from None


class _Status(msgspec.Struct, frozen=True):
    code: int
    reason: str
    message: str


class _Answer(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    uid: str
    allowed: bool
    patch_type: str | None = None
    patch: bytes | None = None
    status: _Status | None = None
    warnings: tuple[str, ...] = ()


class _AnsweredReview(msgspec.Struct, frozen=True, rename="camel"):
    response: _Answer
    api_version: str = API_VERSION
    kind: str = "AdmissionReview"


_encoder = msgspec.json.Encoder()


def encode_answer(uid: str, decision: Decision) -> bytes:
    """Write the answer to the review of this uid.

    Parameters
    ----------
    uid
        `Review.uid`.
    decision
        What was decided; its operations become a base64 JSON Patch, and no patch at all when there are none.

    Returns
    -------
    bytes
        An AdmissionReview with a response, JSON.
    """
    operations, refusal = decision.operations, decision.refusal
    return _encoder.encode(
        _AnsweredReview(
            _Answer(
                uid=uid,
                allowed=decision.allowed,
                patch_type="JSONPatch" if operations else None,
                patch=_encoder.encode(operations) if operations else None,
                status=_Status(_CODES[refusal.reason], refusal.reason, refusal.message) if refusal else None,
                warnings=decision.warnings,
            )
        )
    )
