"""The files that the scripts write into a pod: who may read them, and that a second start changes nothing."""

from __future__ import annotations

import os
import shutil
import stat

from support.minicluster_pods import pods

from fluxqueue.certs.curve import read_file
from fluxqueue.minicluster.broker import Share
from fluxqueue.minicluster.scripts import EXIT_REPLACEABLE
from fluxqueue.rest.commands import read_environment


def test_each_broker_has_a_copy_of_the_certificate_that_only_it_may_read() -> None:
    user = 12345 if os.geteuid() == 0 else None
    with pods("true", size=2, harness={"user": user}) as cluster:
        cluster.set(fq_patience=1)
        cluster.run()  # the stand-in's own interpreter may be out of another user's reach
        for index in (0, 1):
            copy = cluster.directory(index) / "mount" / "config" / "curve" / "curve.cert"
            assert stat.S_IMODE(copy.stat().st_mode) == 0o600
            assert copy.stat().st_uid == (user or os.geteuid())
            assert read_file(copy) == cluster.certificate


def test_the_certificate_is_written_nowhere_else() -> None:
    with pods("true", size=2, logging={"debug": True, "zeromq": True}) as cluster:
        _, outputs, errors = cluster.run()
        for text in [*outputs, *errors, cluster.log.read_text(), *cluster.files.values()]:
            assert cluster.certificate.secret_key not in text
        copies = [
            path
            for path in cluster.directory(0).rglob("*")
            if path.is_file() and cluster.certificate.secret_key in path.read_text()
        ]
        assert sorted(path.name for path in copies) == ["curve.cert", "curve.cert"]


def test_containers_that_are_started_again_change_nothing() -> None:
    with pods("true", size=1) as cluster:
        assert cluster.init(0) == 0
        view = cluster.directory(0) / "mount"
        before = {path: path.lstat().st_mtime_ns for path in view.rglob("*")}
        assert cluster.init(0) == 0
        assert {path: path.lstat().st_mtime_ns for path in view.rglob("*")} == before
        assert cluster.run()[0] == [0]
        config = view / "config" / "etc" / "flux" / "config" / "broker.toml"
        first = config.read_text()
        assert cluster.run()[0] == [0]
        assert config.read_text() == first
        assert first.count("[bootstrap]") == 1


def test_resources_are_those_of_the_allocation() -> None:
    with pods("true", size=2, harness={"given": [Share(4, 1), Share(8)]}) as cluster:
        assert cluster.run()[0] == [0, 0]
        text = (
            cluster.directory(1) / "mount" / "config" / "etc" / "flux" / "config" / "broker.toml"
        ).read_text()
        assert 'hosts = "lammps-0"\ncores = "0-3"\ngpus = "0"' in text
        assert 'hosts = "lammps-1"\ncores = "0-7"' in text


def test_the_environment_of_the_instance_can_be_sourced() -> None:
    with pods("true", size=1) as cluster:
        assert cluster.run()[0] == [0]
        text = (cluster.directory(0) / "mount" / "flux-view.sh").read_text()
        assert "export fluxsocket=local://" in text
        assert (cluster.directory(0) / "mount" / "flux-connect.sh").exists()


def test_jobs_from_rest_get_the_applications_environment_from_a_private_file() -> None:
    with pods("true", size=2, environment={"LINES": "one\ntwo"}, restful={"enabled": True}) as cluster:
        assert cluster.run()[0] == [0, 0]
        written = cluster.directory(0) / "mount" / "config" / "environment"
        variables = read_environment(written) or {}
        assert variables["LINES"] == "one\ntwo"
        assert variables["PATH"].split(":")[-1].endswith("view/bin")
        assert stat.S_IMODE(written.stat().st_mode) == 0o600
        assert not (cluster.directory(1) / "mount" / "config" / "environment").exists()


def test_without_a_rest_service_the_environment_is_not_written() -> None:
    with pods("true", size=1) as cluster:
        assert cluster.run()[0] == [0]
        assert not (cluster.directory(0) / "mount" / "config" / "environment").exists()


def test_a_log_folder_that_cannot_be_made_is_a_warning_where_no_batch_needs_it() -> None:
    with pods("true", size=2, logs="/dev/null/logs") as cluster:
        codes, _, errors = cluster.run()
        assert codes == [0, 0]
        assert "/dev/null/logs cannot be made; only a batch needs it" in errors[0]


def test_a_batch_without_a_place_for_its_output_fails_with_the_reason() -> None:
    with pods("true\ntrue", size=1, batch=True, logs="/dev/null/logs") as cluster:
        codes, _, _ = cluster.run()
        assert codes == [1]
        assert (
            "the folder /dev/null/logs for the output of the batch cannot be made: set logs"
            in cluster.reason(0)
        )


def test_a_volume_without_space_is_the_reason_and_leaves_no_half_file() -> None:
    with pods("true", size=1) as cluster:
        assert cluster.init(0) == 0
        full = cluster.directory(0) / "bin" / "cat"
        full.parent.mkdir()
        full.write_text("#!/bin/sh\necho half\necho 'write error: No space left on device' >&2\nexit 1\n")
        full.chmod(0o755)
        codes, _, _ = cluster.run(PATH=f"{full.parent}:{os.environ['PATH']}")
        assert codes == [EXIT_REPLACEABLE]
        assert "curve.cert cannot be written: has" in cluster.reason(0)
        assert list((cluster.directory(0) / "mount" / "config" / "curve").iterdir()) == []


def test_a_leader_that_cannot_write_the_environment_for_rest_starts_no_broker() -> None:
    with pods("true", size=1, restful={"enabled": True}) as cluster:
        assert cluster.init(0) == 0
        blocked = cluster.directory(0) / "bin" / "mv"
        blocked.parent.mkdir()
        blocked.write_text('#!/bin/sh\ncase $* in *config/environment*) exit 1 ;; esac\nexec /bin/mv "$@"\n')
        blocked.chmod(0o755)
        assert cluster.run(PATH=f"{blocked.parent}:{os.environ['PATH']}")[0] == [EXIT_REPLACEABLE]
        assert cluster.calls("start") == []


def test_an_image_without_a_tool_that_the_scripts_need_is_the_reason() -> None:
    with pods("true", size=1) as cluster:
        tools = cluster.make(0) / "bin"
        tools.mkdir()
        for tool in ("bash", "cat", "chmod", "env", "id", "mkdir", "rm", "sleep"):
            (tools / tool).symlink_to(shutil.which(tool) or "")
        assert cluster.run(PATH=str(tools))[0] == [127]
        assert "the image has no mv on its PATH" in cluster.reason(0)
