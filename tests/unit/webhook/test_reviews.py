import base64
import json
from typing import Any

import pytest
from support.admission import NOW
from support.builders import make_job, make_pod, make_queue, make_review

from fluxqueue.webhook.decide import AdmissionOutcome, AdmissionRefusal, AdmissionSettings, Decision, decide
from fluxqueue.webhook.patches import add
from fluxqueue.webhook.reviews import MalformedReview, encode_answer, read_review


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "the AdmissionReview cannot be read"),
        (b"not json", "the AdmissionReview cannot be read"),
        (b"[]", "Expected `object`, got `array`"),
        (b"{}", "missing required field"),
        (b"\xff\xfe", "the AdmissionReview cannot be read"),
        (b'{"kind": "\xff"}', "the AdmissionReview cannot be read"),
        (b'{"request":{"object":' + b"[" * 200_000, "nested too deeply"),
        (
            make_review(make_pod()).with_("kind", "Status").body(),
            "send an AdmissionReview of admission.k8s.io/v1",
        ),
        (
            make_review(make_pod()).with_("apiVersion", "admission.k8s.io/v1beta1").body(),
            "v1beta1' ?, kind|v1beta1",
        ),
        (make_review(make_pod()).with_("request.uid", "").body(), "request.uid is empty"),
        (make_review(make_pod()).without("request.uid").body(), "missing required field `uid`"),
        (make_review(make_pod()).without("request").body(), "missing required field `request`"),
        (
            make_review(make_pod()).with_("request.kind", "Pod").body(),
            r"Expected `object`, got `str` - at `\$.request.kind`",
        ),
        (
            make_review(make_pod()).with_("request.object", None).body(),
            "the object of kind Pod cannot be read",
        ),
        (make_review(make_pod()).without("request.object").body(), "the object of kind Pod cannot be read"),
        (
            make_review(make_job()).with_("request.object.spec", {}).body(),
            "missing required field `template`",
        ),
        (make_review(make_pod().with_("metadata.labels", ["a"])).body(), r"`\$.metadata.labels`"),
        (
            make_review(make_pod().with_("spec.schedulingGates", {"name": "x"})).body(),
            r"`\$.spec.schedulingGates`",
        ),
    ],
)
def test_a_malformed_review_is_refused_with_a_reason(body: bytes, why: str) -> None:
    with pytest.raises(MalformedReview, match=why):
        read_review(body)


def test_a_review_is_read_as_far_as_it_matters() -> None:
    review = read_review(
        make_review(make_pod("x").namespace("hpc"), user="bob").dry_run().with_("request.newInV2", 1).body()
    )
    assert (review.kind, review.namespace, review.requester, review.dry_run) == ("Pod", "hpc", "bob", True)
    assert review.describe() == "Pod hpc/x"


def test_an_object_without_any_name_is_still_described() -> None:
    assert read_review(make_review(make_pod().without("metadata.name")).body()).describe() == "Pod default/*"
    assert read_review(make_review(make_pod()).operation("DELETE").body()).describe() == "Pod default/p"
    assert read_review(make_review(make_queue("night")).body()).describe() == "FluxQueue night"


def answer(decision: Decision) -> dict[str, Any]:
    document = json.loads(encode_answer("u-1", decision))
    assert (document["apiVersion"], document["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response: dict[str, Any] = document["response"]
    assert response.pop("uid") == "u-1"
    return response


def test_an_answer_without_operations_has_no_patch_at_all() -> None:
    assert answer(Decision(AdmissionOutcome.PASSED)) == {"allowed": True}


def test_a_patch_goes_out_as_base64_json_patch() -> None:
    response = answer(Decision(AdmissionOutcome.HELD, (add("/spec/suspend", True),), ("look here",)))
    assert response["patchType"] == "JSONPatch"
    assert json.loads(base64.b64decode(response["patch"])) == [
        {"op": "add", "path": "/spec/suspend", "value": True}
    ]
    assert response["warnings"] == ["look here"]


@pytest.mark.parametrize(("reason", "code"), [("Forbidden", 403), ("Invalid", 422)])
def test_a_refusal_carries_its_sentence(reason: Any, code: int) -> None:
    response = answer(Decision(AdmissionOutcome.REFUSED, refusal=AdmissionRefusal(reason, "because")))
    assert response == {"allowed": False, "status": {"code": code, "reason": reason, "message": "because"}}


def test_a_removal_has_no_value() -> None:
    review = read_review(
        make_review(
            make_pod().owned_by("Job").gate("fluxqueue").allocation("n1"),
            user="system:serviceaccount:kube-system:job-controller",
        ).body()
    )
    response = answer(decide(review, AdmissionSettings(), NOW))
    assert {"op": "remove", "path": "/spec/schedulingGates/0"} in json.loads(
        base64.b64decode(response["patch"])
    )
