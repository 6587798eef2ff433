"""The webhook process: TLS, HTTP/1.1, certificates that arrive late and change, and its shutdown."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import ssl
import sys
from pathlib import Path

import pytest
from support.builders import make_job, make_pod, make_review
from support.webhook_process import (
    Answer,
    make_leaf,
    new_authority,
    now,
    running_webhook,
    trusting,
    trusting_anybody,
)

from fluxqueue.certs.authority import Pair
from fluxqueue.certs.pairs import parse_certificate, write_pair
from fluxqueue.local.ports import free_port

REVIEW = make_review(make_job()).body()
UID = json.loads(REVIEW)["request"]["uid"]


def serial_of(pair: Pair) -> str:
    text = f"{parse_certificate(pair.certificate).serial_number:X}"
    return text if len(text) % 2 == 0 else f"0{text}"


def assert_suspends(answer: Answer) -> None:
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json["response"]["uid"] == UID
    assert answer.json["response"]["patchType"] == "JSONPatch"


async def test_reviews_are_answered_on_one_connection_kept_open(tmp_path: Path) -> None:
    authority = new_authority()
    write_pair(tmp_path, make_leaf(authority), now())
    async with running_webhook(tmp_path) as webhook:
        connection = await webhook.connect(trusting(authority))
        assert connection.version == "TLSv1.3"
        for _ in range(50):
            answer = await connection.request("POST", "/mutate", REVIEW)
            assert_suspends(answer)
            assert "connection" not in answer.headers
        forged = await connection.request("POST", "/mutate", make_review(make_pod().allocation("n1")).body())
        assert forged.json["response"]["allowed"] is False
        assert forged.json["response"]["status"]["code"] == 403
        await connection.close()


async def test_a_malformed_review_gets_a_sentence_on_a_connection_that_stays_open(tmp_path: Path) -> None:
    authority = new_authority()
    write_pair(tmp_path, make_leaf(authority), now())
    async with running_webhook(tmp_path) as webhook:
        connection = await webhook.connect(trusting(authority))
        deep = b'{"request":{"object":' + b"[" * 100_000
        wrong = make_review(make_pod()).with_("request.object.metadata.labels", 5).body()
        for body in (b"", b"{}", b"null", b"\xff\xfe\x00", deep, wrong):
            answer = await connection.request("POST", "/mutate", body)
            assert answer.status == 400
            assert answer.body.decode().count("\n") == 1
            assert b"cannot be read" in answer.body
            assert b"Traceback" not in answer.body
        assert_suspends(await connection.request("POST", "/mutate", REVIEW))
        assert (await connection.request("GET", "/mutate")).status == 405
        assert (await connection.request("GET", "/docs")).status == 404
        metrics = (await connection.request("GET", "/metrics")).body.decode()
        assert 'fluxqueue_webhook_reviews_total{kind="other",outcome="malformed"} 6.0' in metrics
        assert 'fluxqueue_webhook_reviews_total{kind="Job",outcome="held"} 1.0' in metrics
        assert "fluxqueue_webhook_review_seconds_count 7.0" in metrics
        await connection.close()
        assert not [line for line in webhook.lines if "plain" in line]


async def test_a_body_larger_than_any_object_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    authority = new_authority()
    write_pair(tmp_path, make_leaf(authority), now())
    async with running_webhook(tmp_path) as webhook:
        connection = await webhook.connect(trusting(authority))
        answer = await connection.request("POST", "/mutate", b"", length=2**30)
        assert answer.status == 413
        assert await connection.ended()
        await connection.close()
        chunked = await webhook.connect(trusting(authority))
        chunked.write_raw(b"POST /mutate HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        part = b"x" * 2**16
        for _ in range(53):
            chunked.write_raw(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        assert (await chunked.answer()).status == 413
        await chunked.close()
        largest = make_review(make_job().annotation("large", "x" * (3 * 2**20))).body()
        assert_suspends(await webhook.ask(trusting(authority), "POST", "/mutate", largest))


async def test_a_client_that_hangs_up_in_the_middle_harms_nobody(tmp_path: Path) -> None:
    authority = new_authority()
    write_pair(tmp_path, make_leaf(authority), now())
    async with running_webhook(tmp_path) as webhook:
        for _ in range(5):
            connection = await webhook.connect(trusting(authority))
            await connection.send("POST", "/mutate", REVIEW[:100], length=len(REVIEW))
            await connection.close()
        garbage = await webhook.connect(trusting(authority))
        garbage.write_raw(b"\x00\x01 not http\r\n\r\n")
        assert (await garbage.answer()).status == 400
        await garbage.close()
        assert_suspends(await webhook.ask(trusting(authority), "POST", "/mutate", REVIEW))
        assert not [line for line in webhook.lines if "plain" in line or line["level"] == "error"]


@pytest.mark.parametrize(
    ("highest", "works"), [(ssl.TLSVersion.TLSv1_2, True), (ssl.TLSVersion.TLSv1_1, False)]
)
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated:DeprecationWarning")
async def test_nothing_older_than_tls_1_2_is_spoken(
    tmp_path: Path, highest: ssl.TLSVersion, works: bool
) -> None:
    authority = new_authority()
    write_pair(tmp_path, make_leaf(authority), now())
    context = trusting(authority)
    context.minimum_version = ssl.TLSVersion.TLSv1_1
    context.maximum_version = highest
    context.set_ciphers("ALL:@SECLEVEL=0")
    async with running_webhook(tmp_path) as webhook:
        if works:
            assert_suspends(await webhook.ask(context, "POST", "/mutate", REVIEW))
        else:
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await webhook.ask(context, "POST", "/mutate", REVIEW)


async def test_the_kubelet_asks_a_port_of_its_own_whether_it_lives(tmp_path: Path) -> None:
    """Without TLS, and without a certificate."""
    port = free_port()
    async with running_webhook(tmp_path / "not-mounted-yet", "--health-port", str(port)):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(60):
            assert (await reader.read()).startswith(b"HTTP/1.1 200")
        writer.close()


async def test_without_a_certificate_it_runs_and_readiness_names_what_is_missing(tmp_path: Path) -> None:
    authority, folder = new_authority(), tmp_path / "not-mounted-yet"
    async with running_webhook(folder) as webhook:
        assert (await webhook.ask(trusting_anybody(), "GET", "/healthz")).status == 200
        waiting = await webhook.ask(trusting_anybody(), "GET", "/readyz")
        assert waiting.status == 503
        assert waiting.body.decode() == f"waiting for the certificate: {folder}/tls.crt does not exist\n"
        with pytest.raises(ssl.SSLCertVerificationError):
            await webhook.connect(trusting(authority))
        leaf = make_leaf(authority)
        write_pair(folder, leaf, now())
        await webhook.logged("certificate.loaded")
        assert (await webhook.ask(trusting(authority), "GET", "/readyz")).status == 200
        assert_suspends(await webhook.ask(trusting(authority), "POST", "/mutate", REVIEW))
        assert len([line for line in webhook.lines if line["event"] == "certificate.missing"]) == 1
        ends = parse_certificate(leaf.certificate).not_valid_after_utc.timestamp()
        shown = (await webhook.ask(trusting(authority), "GET", "/metrics")).body.decode()
        assert (
            float(shown.partition("\nfluxqueue_webhook_certificate_expiry_timestamp_seconds ")[2].split()[0])
            == ends
        )


async def test_certificates_change_under_load_without_one_failed_review(tmp_path: Path) -> None:
    authority = new_authority()
    leaf = make_leaf(authority)
    write_pair(tmp_path, leaf, now())
    context, finished = trusting(authority), asyncio.Event()
    kept, fresh, serials = 0, 0, set()

    async with running_webhook(tmp_path) as webhook:

        async def keep_asking() -> None:
            nonlocal kept
            connection = await webhook.connect(context)
            while not finished.is_set():
                assert_suspends(await connection.request("POST", "/mutate", REVIEW))
                kept += 1
            await connection.close()

        async def connect_anew() -> None:
            nonlocal fresh
            while not finished.is_set():
                connection = await webhook.connect(context)
                serials.add(connection.serial)
                assert_suspends(await connection.request("POST", "/mutate", REVIEW))
                await connection.close()
                fresh += 1

        async def renew() -> None:
            for _ in range(15):
                following = make_leaf(authority)
                write_pair(tmp_path, following, now())
                await webhook.logged("certificate.loaded", serial=serial_of(following))
                connection = await webhook.connect(context)
                assert connection.serial == serial_of(following)
                await connection.close()
            finished.set()

        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(keep_asking())
            group.create_task(connect_anew())
            group.create_task(renew())
    assert kept > 100
    assert fresh > 15
    assert len(serials) > 1


async def test_a_bad_pair_is_named_and_the_one_before_keeps_serving(tmp_path: Path) -> None:
    authority = new_authority()
    good = make_leaf(authority)
    write_pair(tmp_path, good, now())
    async with running_webhook(tmp_path) as webhook:
        connection = await webhook.connect(trusting(authority))
        (tmp_path / "tls.key").unlink()
        (tmp_path / "tls.key").write_bytes(make_leaf(authority).key)
        refused = await webhook.logged("certificate.refused")
        assert "tls.key belongs to another certificate than tls.crt" in refused["problem"]
        assert refused["still_serving"]
        (tmp_path / "tls.key").unlink()
        await webhook.logged("certificate.missing")
        assert_suspends(await connection.request("POST", "/mutate", REVIEW))
        again = await webhook.connect(trusting(authority))
        assert again.serial == serial_of(good)
        assert (await again.request("GET", "/readyz")).status == 200
        following = make_leaf(authority)
        write_pair(tmp_path, following, now())
        await webhook.logged("certificate.loaded", serial=serial_of(following))
        last = await webhook.connect(trusting(authority))
        assert last.serial == serial_of(following)
        for each in (connection, again, last):
            await each.close()


async def test_sigterm_drains_before_it_ends_and_no_review_is_lost(tmp_path: Path) -> None:
    authority = new_authority()
    write_pair(tmp_path, make_leaf(authority), now())
    async with running_webhook(tmp_path, "--drain-seconds", "600") as webhook:
        idle, under_way, later = [await webhook.connect(trusting(authority)) for _ in range(3)]
        for connection in (idle, under_way, later):
            assert_suspends(await connection.request("POST", "/mutate", REVIEW))
        await under_way.send("POST", "/mutate", REVIEW[:200], length=len(REVIEW))
        webhook.send_signal(signal.SIGTERM)
        await webhook.logged("webhook.draining")

        assert (await webhook.ask(trusting(authority), "GET", "/readyz")).status == 503
        assert (await webhook.ask(trusting(authority), "GET", "/healthz")).status == 200
        returned = await later.request("POST", "/mutate", REVIEW)
        assert_suspends(returned)
        assert returned.headers["connection"] == "close"
        assert await later.ended()
        assert_suspends(await webhook.ask(trusting(authority), "POST", "/mutate", REVIEW))

        webhook.send_signal(signal.SIGTERM)
        assert await idle.ended()
        under_way.write_raw(REVIEW[200:])
        assert_suspends(await under_way.answer())
        assert await webhook.ended() == 0
        assert webhook.lines[-1]["event"] == "webhook.stopped"
        for connection in (idle, under_way, later):
            await connection.close()


async def test_the_drain_ends_by_itself(tmp_path: Path) -> None:
    write_pair(tmp_path, make_leaf(new_authority()), now())
    async with running_webhook(tmp_path, "--drain-seconds", "0.1") as webhook:
        webhook.send_signal(signal.SIGTERM)
        await webhook.logged("webhook.draining")
        assert await webhook.ended() == 0


@pytest.mark.parametrize(
    "signals", [[signal.SIGINT], [signal.SIGTERM, signal.SIGTERM], [signal.SIGTERM, signal.SIGINT]]
)
async def test_an_impatient_end_does_not_wait_for_the_drain(
    tmp_path: Path, signals: list[signal.Signals]
) -> None:
    write_pair(tmp_path, make_leaf(new_authority()), now())
    async with running_webhook(tmp_path, "--drain-seconds", "600") as webhook:
        first, *rest = signals
        webhook.send_signal(first)
        for number in rest:
            await webhook.logged("webhook.draining")
            webhook.send_signal(number)
        assert await webhook.ended() == 0


@pytest.mark.parametrize(("host", "why"), [("127.0.0.1", "in use"), ("no-such-host.invalid", "")])
async def test_an_address_that_cannot_be_had_is_named(tmp_path: Path, host: str, why: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [
            sys.executable,
            "-m",
            "fluxqueue.webhook.main",
            "--host",
            host,
            "--port",
            port,
            "--cert-dir",
            str(tmp_path),
        ]
        process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
        async with asyncio.timeout(60):
            _, error = await process.communicate()
    last = error.decode().splitlines()[-1]
    assert process.returncode == 1
    assert last.startswith(f"fluxqueue webhook: cannot listen on {host}:{port}: ")
    assert why in last
