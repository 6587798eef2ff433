"""`fluxqueue verify`: asks the webhook, the queue and the doctor of an installation, as `helm test` does.

It runs in a pod with a token of the doctor's ServiceAccount, of the audience that the queue expects, and
calls the Services by their names. So it tests names, network policies, certificates, rights and programs
together. Every check is repeated until it passes or time is over, because a Service chooses among replicas
and only one of them leads. It changes nothing; the review for the webhook is of no object.
"""

from __future__ import annotations

import argparse
import http.client
import json
import ssl
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from fluxqueue.api.names import OPERATOR_TOKEN_HEADER

__all__ = ["CheckFailed", "Verification", "main"]

_FAILED: Final = 1
_CALL_S: Final = 30.0
_PAUSE_S: Final = 1.0
_MOST_BYTES: Final = 16 * 2**20
_REVIEW: Final[dict[str, Any]] = {
    "apiVersion": "admission.k8s.io/v1",
    "kind": "AdmissionReview",
    "request": {
        "uid": "fluxqueue-verify",
        "kind": {"group": "batch", "version": "v1", "kind": "Job"},
        "resource": {"group": "batch", "version": "v1", "resource": "jobs"},
        "name": "verify",
        "namespace": "fluxqueue-verify",
        "operation": "CREATE",
        "dryRun": True,
        "userInfo": {"username": "fluxqueue-verify", "groups": ["system:authenticated"]},
        "object": {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "verify", "namespace": "fluxqueue-verify"},
            "spec": {
                "template": {
                    "spec": {"restartPolicy": "Never", "containers": [{"name": "verify", "image": "verify"}]}
                }
            },
        },
        "oldObject": None,
        "options": {},
    },
}


class CheckFailed(Exception):
    """A program did not answer as it has to; the message says which and how."""


@dataclass(frozen=True)
class Verification:
    """The programs of one installation.

    Attributes
    ----------
    webhook, queue
        Addresses, such as ``https://fluxqueue-webhook.fluxqueue-system.svc``.
    webhook_ca, queue_ca
        Files with the authorities of their certificates.
    token
        File with the token for the queue; read for each call, because the kubelet replaces it.
    """

    webhook: str
    queue: str
    webhook_ca: Path
    queue_ca: Path
    token: Path

    def webhook_holds(self) -> str:
        """Let the webhook review a Job.

        Raises
        ------
        CheckFailed
            It does not answer, or would not hold the Job.
        """
        answer = _call(self.webhook, "/mutate?timeout=5s", self.webhook_ca, body=json.dumps(_REVIEW).encode())
        response = answer.get("response") or {}
        if not response.get("allowed") or not response.get("patch"):
            raise CheckFailed(
                f"{self.webhook} answered a Job with {json.dumps(response)[:200]}, and has to hold it"
            )
        return "the webhook answers a review, and holds a Job"

    def queue_leads(self) -> str:
        """Ask the queue for its status, until it is the leader who answers.

        Raises
        ------
        CheckFailed
            It does not answer, another replica does, or something is missing.
        """
        status = self._ask("/status")
        if status.get("missing"):
            raise CheckFailed(f"{self.queue} is not ready: {'; '.join(map(str, status['missing'].values()))}")
        if status.get("role") != "leader":
            raise CheckFailed(f"{self.queue} answered as {status.get('role')}, and not as leader")
        return "a queue leads, with Postgres and Fluxion"

    def doctor_agrees(self) -> str:
        """Let the doctor compare cluster, tables and graph.

        Raises
        ------
        CheckFailed
            It does not answer. What it finds is no failure of the installation, and is counted.
        """
        found = len(self._ask("/doctor").get("findings") or ())
        return f"the doctor examined the cluster and has {found} findings" + (
            ": see kubectl fluxqueue doctor" if found else ""
        )

    def _ask(self, path: str) -> dict[str, Any]:
        try:
            token = self.token.read_text().strip()
        except OSError as error:
            raise CheckFailed(f"cannot read the token {self.token}: {error.strerror}") from None
        return _call(self.queue, path, self.queue_ca, headers={OPERATOR_TOKEN_HEADER: token})


def _call(
    url: str, path: str, authority: Path, *, headers: dict[str, str] | None = None, body: bytes | None = None
) -> dict[str, Any]:
    address = urlsplit(url)
    try:
        context = ssl.create_default_context(cafile=str(authority))
    except OSError as error:
        raise CheckFailed(f"cannot read the authority {authority}: {error.strerror or error}") from None
    connection = http.client.HTTPSConnection(
        address.hostname or "", address.port or 443, timeout=_CALL_S, context=context
    )
    try:
        sent = {
            "Accept": "application/json",
            **(headers or {}),
            **({"Content-Type": "application/json"} if body else {}),
        }
        connection.request("POST" if body else "GET", path, body=body, headers=sent)
        answer = connection.getresponse()
        text = answer.read(_MOST_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise CheckFailed(f"{url}{path} does not answer: {error}") from None
    finally:
        connection.close()
    if answer.status != http.client.OK:
        raise CheckFailed(
            f"{url}{path} answered {answer.status}: {text[:300].decode(errors='replace').strip()}"
        )
    try:
        document = json.loads(text)
    except ValueError:
        raise CheckFailed(f"{url}{path} answered no JSON") from None
    if not isinstance(document, dict):
        raise CheckFailed(f"{url}{path} answered no JSON object")
    return document


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fluxqueue verify", description="Asks the webhook, the queue and the doctor of an installation."
    )
    parser.add_argument("--webhook", required=True, metavar="URL", help="address of the webhook's Service")
    parser.add_argument(
        "--webhook-ca", required=True, type=Path, metavar="FILE", help="authority of its certificate"
    )
    parser.add_argument(
        "--queue", required=True, metavar="URL", help="address of the queue's Service, at its port of metrics"
    )
    parser.add_argument(
        "--queue-ca", required=True, type=Path, metavar="FILE", help="authority of its certificate"
    )
    parser.add_argument(
        "--token", required=True, type=Path, metavar="FILE", help="token of the doctor's ServiceAccount"
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=120.0,
        metavar="SECONDS",
        help="time for all checks (default: %(default)g)",
    )
    return parser


def _until(check: Callable[[], str], deadline: float) -> str:
    """Try a check until it holds; after the deadline, raise its last failure."""
    while True:
        try:
            return check()
        except CheckFailed:
            if time.monotonic() + _PAUSE_S >= deadline:
                raise
        time.sleep(_PAUSE_S)


def main(argv: Sequence[str] | None = None) -> int:
    """Run every check, and print a line for each.

    Parameters
    ----------
    argv
        Words after `fluxqueue verify`; those of the process if None.

    Returns
    -------
    int
        0, or 1 if a check failed until the time was over.
    """
    given = _parser().parse_args(argv)
    verification = Verification(given.webhook, given.queue, given.webhook_ca, given.queue_ca, given.token)
    deadline = time.monotonic() + given.timeout
    failed = False
    for check in (verification.webhook_holds, verification.queue_leads, verification.doctor_agrees):
        try:
            print(f"ok    {_until(check, deadline)}")
        except CheckFailed as error:
            failed = True
            print(f"FAIL  {error}")
    return _FAILED if failed else 0


if __name__ == "__main__":
    sys.exit(main())
