"""Stand-ins for images that the project does not build: Postgres, and an image for work.

Postgres is Debian's package with an entry point that reads the variables of the stock image
(``postgres-entrypoint.sh``).
"""

from __future__ import annotations

import shutil
from pathlib import Path

from fluxqueue.local.nodes.base_image import SEARCH_PATH
from fluxqueue.local.nodes.buildah import Buildah

__all__ = ["make_postgres", "make_work"]

_POSTGRES_MAJOR = "15"
_POSTGRES_SETUP = f"""
groupadd -r -g 999 postgres
useradd -r -g postgres -u 999 -d /var/lib/postgresql -s /bin/bash postgres
export DEBIAN_FRONTEND=noninteractive
mkdir -p /etc/postgresql-common
echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf
apt-get update -qq
apt-get install -y -qq --no-install-recommends postgresql-{_POSTGRES_MAJOR} >/dev/null
sed -ri "s!^#?(listen_addresses)\\s*=\\s*\\S+.*!\\1 = '*'!" \\
    /usr/share/postgresql/{_POSTGRES_MAJOR}/postgresql.conf.sample
install -d -o postgres -g postgres -m 1777 /var/lib/postgresql/data
install -d -o postgres -g postgres -m 3777 /var/run/postgresql
mkdir -p /docker-entrypoint-initdb.d
apt-get clean
rm -rf /var/lib/apt/lists/*
"""


def make_postgres(buildah: Buildah, base: str, name: str) -> None:
    """Make the stand-in for the stock image of Postgres, on an image that `make_base` made."""
    container = buildah.run("from", "--pull-never", base)
    root = Path(buildah.run("mount", container))
    entrypoint = root / "usr/local/bin/docker-entrypoint.sh"
    shutil.copy(Path(__file__).with_name("postgres-entrypoint.sh"), entrypoint)
    entrypoint.chmod(0o755)
    buildah.run("run", "--isolation", "chroot", container, "--", "bash", "-ec", _POSTGRES_SETUP)
    buildah.run("umount", container)
    settings = [
        "PG_MAJOR=" + _POSTGRES_MAJOR,
        f"PATH={SEARCH_PATH}:/usr/lib/postgresql/{_POSTGRES_MAJOR}/bin",
        "PGDATA=/var/lib/postgresql/data",
    ]
    words = [word for setting in settings for word in ("--env", setting)]
    command = [
        "--entrypoint",
        '["docker-entrypoint.sh"]',
        "--cmd",
        "postgres",
        "--stop-signal",
        "SIGINT",
        "--port",
        "5432",
    ]
    buildah.run("config", *words, *command, container)
    buildah.run("commit", "--rm", container, name)


def make_work(buildah: Buildah, base: str, name: str, program: Path) -> None:
    """Make an image for work on one that `make_base` made;
    it is also a Flux view whose ``flux`` is one Python program.
    """
    container = buildah.run("from", "--pull-never", base)
    root = Path(buildah.run("mount", container))
    view = root / "opt/views/._view/stand-in"
    (view / "bin").mkdir(parents=True)
    (view / "lib/python3/site-packages").mkdir(parents=True)
    (root / "opt/software").mkdir()
    flux = view / "bin/flux"
    flux.write_bytes(program.read_bytes())
    flux.chmod(0o755)
    buildah.run("umount", container)
    buildah.run("commit", "--rm", container, name)
