from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.ecosystem_controllers import (
    ARGO_WORKFLOWS,
    JOBSET,
    KUBERAY,
    LEADER_WORKER_SET,
    MPI_OPERATOR,
    SCHEDULER_PLUGINS,
    TRAINER,
    TRAINING_OPERATOR,
    EcosystemController,
    Launch,
    may_build,
)

CONTROLLERS = [
    ARGO_WORKFLOWS,
    JOBSET,
    LEADER_WORKER_SET,
    MPI_OPERATOR,
    KUBERAY,
    SCHEDULER_PLUGINS,
    TRAINER,
    TRAINING_OPERATOR,
]


@pytest.mark.parametrize("controller", CONTROLLERS, ids=lambda each: each.name)
def test_a_controller_has_the_version_that_its_module_pins(controller: EcosystemController) -> None:
    assert controller.version.startswith("v")
    assert controller.version.count(".") == 2


@pytest.mark.parametrize("controller", CONTROLLERS, ids=lambda each: each.name)
def test_its_manifests_and_examples_are_kept_with_its_program(controller: EcosystemController) -> None:
    for path in controller.manifests:
        assert any(Path(path).is_relative_to(kept) for kept in controller.assets)
    examples = Path(controller.examples)
    assert any(
        examples.is_relative_to(kept) or Path(kept).is_relative_to(examples) for kept in controller.assets
    )


@pytest.mark.parametrize("controller", CONTROLLERS, ids=lambda each: each.name)
def test_a_program_that_is_not_in_the_cache_is_not_built_unasked(
    controller: EcosystemController, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("FLUXQUEUE_ECOSYSTEM", raising=False)
    assert controller.programs(build=may_build()) is None
    assert list(tmp_path.iterdir()) == []


def test_a_manager_is_told_ports_and_certificates_by_its_configuration(tmp_path: Path) -> None:
    launch = Launch(tmp_path, webhook_port=1234, health_port=5678)
    (config, _) = LEADER_WORKER_SET.arguments(launch)
    told = json.loads(Path(config.removeprefix("--config=")).read_text())
    assert told["webhook"] == {"host": "127.0.0.1", "port": 1234, "certDir": str(launch.certificates)}
    assert told["health"] == {"healthProbeBindAddress": "127.0.0.1:5678"}
    assert told["internalCertManagement"] == {"enable": False}
