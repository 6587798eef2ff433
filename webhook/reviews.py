"""AdmissionReviews and the responses to them.

The API server sends the whole object, with defaults and in its canonical form. Only the fields that a
decision needs are read, as partial structs. A field that is not read is not written either, so a field of a
newer Kubernetes survives. Jobs and Pods are decoded only on CREATE, because nothing is decided about them
later and a DELETE contains no object. Objects of our own kinds stay undecoded until
`fluxqueue.webhook.validation` knows their struct.

A review that cannot be read raises `MalformedReview`. The server responds with HTTP 400 and the sentence. The
API server treats that as a webhook failure, so ``failurePolicy`` decides, and kubectl shows the sentence.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from fluxqueue.api.job_scheduling import JobScheduling
from fluxqueue.api.metadata import ObjectMeta, PartialObject
from fluxqueue.api.names import MINICLUSTER_GROUP
from fluxqueue.api.nesting import decode_limited
from fluxqueue.api.pods import PodSchedulingGroup, SchedulingGate
from fluxqueue.webhook.decisions import Decision

__all__ = [
    "MalformedReview",
    "Review",
    "ReviewedJob",
    "ReviewedJobMeta",
    "ReviewedJobSpec",
    "ReviewedMiniCluster",
    "ReviewedPod",
    "ReviewedPodSpec",
    "ReviewedTemplate",
    "ReviewedTemplateSpec",
    "decode",
    "encode_answer",
    "read_review",
]

API_VERSION = "admission.k8s.io/v1"
_MOST_TOKENS = 50_000
_CODES = {"Forbidden": 403, "Invalid": 422, "InternalError": 500}

_T = TypeVar("_T")


class MalformedReview(ValueError):
    """The body is not a usable AdmissionReview; the message gives the reason."""


class ReviewedTemplateSpec(PartialObject, frozen=True):
    """The fields of a pod template's spec that admission reads."""

    node_name: str | None = None
    scheduler_name: str | None = None
    scheduling_group: PodSchedulingGroup | None = None


class ReviewedTemplate(PartialObject, frozen=True):
    """The fields of a Job's pod template that admission reads."""

    metadata: ObjectMeta | None = None
    spec: ReviewedTemplateSpec = ReviewedTemplateSpec()


class ReviewedJobSpec(PartialObject, frozen=True):
    """The fields of a Job's spec that admission reads."""

    template: ReviewedTemplate
    suspend: bool | None = None
    managed_by: str | None = None
    completion_mode: str | None = None
    completions: int | None = None
    parallelism: int | None = None
    scheduling: JobScheduling | None = None


class ManagedFieldsEntry(PartialObject, frozen=True):
    """Which operation of a program managed fields of an object, ``Apply`` or ``Update``."""

    operation: str = ""


class ReviewedJobMeta(ObjectMeta, frozen=True):
    """The metadata of a Job that admission reads."""

    managed_fields: list[ManagedFieldsEntry] | None = None

    @property
    def applied(self) -> bool:
        """True if server-side apply manages fields of the Job."""
        return any(entry.operation == "Apply" for entry in self.managed_fields or ())


class ReviewedJob(PartialObject, frozen=True):
    """The fields of a Job that admission reads."""

    metadata: ReviewedJobMeta
    spec: ReviewedJobSpec


class ReviewedPodSpec(PartialObject, frozen=True):
    """The fields of a pod's spec that admission reads. The affinity is decoded only if the pod is pinned."""

    node_name: str | None = None
    scheduler_name: str | None = None
    scheduling_gates: list[SchedulingGate] | None = None
    affinity: msgspec.Raw = msgspec.Raw(b"")

    def gated_by(self, name: str) -> bool:
        """Return True if the pod has the gate of this name."""
        return any(gate.name == name for gate in self.scheduling_gates or ())


class ReviewedPod(PartialObject, frozen=True):
    """The fields of a pod that admission reads."""

    metadata: ObjectMeta
    spec: ReviewedPodSpec


class ReviewedMiniCluster(PartialObject, frozen=True):
    """The fields of a MiniCluster that admission reads; `fluxqueue.webhook.validation` reads the others."""

    metadata: ObjectMeta


class _GroupVersionKind(PartialObject, frozen=True):
    group: str = ""
    version: str = ""
    kind: str = ""


class _UserInfo(PartialObject, frozen=True):
    username: str = ""


class _Request(PartialObject, frozen=True):
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


class _Envelope(PartialObject, frozen=True):
    api_version: str
    kind: str
    request: _Request


class Review(msgspec.Struct, frozen=True, kw_only=True):
    """One request of the API server.

    Attributes
    ----------
    uid
        Uid of the request, repeated in the response. The object has none yet.
    kind
        Kind of the object, for example ``Job``; ``group`` is its API group, empty for the core's.
    object
        The Job, Pod or MiniCluster to be created; None for every other kind, operation and subresource.
    requester
        User name of the requester.
    document, former
        The new and the former object, undecoded; empty if there is none.
    """

    uid: str
    operation: str
    kind: str
    namespace: str = ""
    requester: str = ""
    dry_run: bool = False
    object: ReviewedJob | ReviewedPod | ReviewedMiniCluster | None = None
    group: str = ""
    name: str = ""
    subresource: str = ""
    document: msgspec.Raw = msgspec.Raw(b"")
    former: msgspec.Raw = msgspec.Raw(b"")

    def describe(self) -> str:
        """Return kind, namespace (if any) and name of the object for messages;
        ``name-*`` if the name is still to be generated.
        """
        meta = self.object.metadata if self.object is not None else ObjectMeta(name=self.name)
        name = meta.name or (f"{meta.generate_name}*" if meta.generate_name else "*")
        return f"{self.kind} {self.namespace}/{name}" if self.namespace else f"{self.kind} {name}"


_envelopes = msgspec.json.Decoder(_Envelope)
_decoders: dict[tuple[str, str], msgspec.json.Decoder[Any]] = {
    ("batch", "Job"): msgspec.json.Decoder(ReviewedJob),
    ("", "Pod"): msgspec.json.Decoder(ReviewedPod),
    (MINICLUSTER_GROUP, "MiniCluster"): msgspec.json.Decoder(ReviewedMiniCluster),
}


def read_review(body: bytes) -> Review:
    """Read an AdmissionReview of admission.k8s.io/v1.

    Parameters
    ----------
    body
        The body of the POST, JSON.

    Returns
    -------
    Review
        The review; its object is decoded if it is a Job, Pod or MiniCluster on CREATE.

    Raises
    ------
    MalformedReview
        Not JSON, not a review, no request uid, another version, or an object whose fields have the wrong
        type. Never another exception.
    """
    envelope = decode(_envelopes, body, "AdmissionReview")
    if envelope.kind != "AdmissionReview" or envelope.api_version != API_VERSION:
        raise MalformedReview(
            f"apiVersion {envelope.api_version!r}, kind {envelope.kind!r} is not understood: send an "
            f"AdmissionReview of {API_VERSION}"
        )
    request = envelope.request
    if not request.uid:
        raise MalformedReview("request.uid is empty: the response has to repeat it")
    decoder = _decoders.get((request.kind.group, request.kind.kind))
    known = decoder is not None and request.operation == "CREATE" and not request.sub_resource
    return Review(
        uid=request.uid,
        operation=request.operation,
        kind=request.kind.kind,
        namespace=request.namespace or "",
        requester=request.user_info.username,
        dry_run=bool(request.dry_run),
        object=decode(decoder, request.object, f"object of kind {request.kind.kind}")
        if known and decoder is not None
        else None,
        group=request.kind.group,
        name=request.name or "",
        subresource=request.sub_resource or "",
        document=request.object,
        former=request.old_object,
    )


def decode(decoder: msgspec.json.Decoder[_T], body: bytes | msgspec.Raw, what: str) -> _T:
    """Decode a part of a review; raise `MalformedReview` if it does not match its type or is nested too
    deep.
    """
    try:
        return decode_limited(decoder, body, _MOST_TOKENS)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedReview(f"the {what} cannot be read: {error}") from None


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
    """Return the response to the review of this uid.

    Parameters
    ----------
    uid
        `Review.uid`.
    decision
        The decision. Its operations become a base64 JSON Patch; there is no patch without operations.

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
