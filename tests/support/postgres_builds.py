"""What the Postgres programs of this machine can do."""

from __future__ import annotations

from pathlib import Path

import pytest

__all__ = ["need_encryption"]


def need_encryption(programs: Path) -> None:
    """Skip a test whose server has to encrypt if the programs in this folder cannot:
    those of the wheel are built without TLS.
    """
    if b"SSL is not supported by this build" in (programs / "postgres").read_bytes():
        pytest.skip(f"the Postgres in {programs} cannot encrypt: install the package postgresql")
