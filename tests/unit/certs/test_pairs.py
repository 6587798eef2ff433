import datetime as dt
from pathlib import Path

import pytest

from fluxqueue.certs.authority import Pair, ServingNames, issue_leaf, make_authority
from fluxqueue.certs.pairs import (
    InvalidPair,
    MissingPair,
    check_pair,
    covers,
    fingerprint,
    read_pair,
    write_pair,
)

NOW = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
AUTHORITY = make_authority("a", NOW)
ONE = issue_leaf(AUTHORITY, ServingNames(dns=("one",)), NOW)
TWO = issue_leaf(AUTHORITY, ServingNames(dns=("two",)), NOW)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    write_pair(tmp_path / "certs", ONE, NOW)
    assert read_pair(tmp_path / "certs") == ONE


def test_only_the_owner_may_read_a_key(tmp_path: Path) -> None:
    write_pair(tmp_path, ONE, NOW)
    assert (tmp_path / "tls.key").stat().st_mode & 0o777 == 0o600


def test_a_pair_is_replaced_in_one_step_and_nothing_is_left_behind(tmp_path: Path) -> None:
    write_pair(tmp_path, ONE, NOW)
    first = fingerprint(tmp_path)
    write_pair(tmp_path, TWO, NOW)
    assert read_pair(tmp_path) == TWO
    assert fingerprint(tmp_path) not in (None, first)
    assert (tmp_path / "tls.crt").is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith("..2030")) == [
        "..data",
        "tls.crt",
        "tls.key",
    ]
    assert len([path for path in tmp_path.iterdir() if path.name.startswith("..2030")]) == 1


def test_the_two_files_of_a_new_folder_appear_in_one_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader between two steps finds both or none: otherwise it reports a second, other problem."""
    seen, replace = [], Path.replace

    def step(path: Path, target: Path) -> Path:
        moved = replace(path, target)
        seen.append(tuple((tmp_path / "new" / name).exists() for name in ("tls.crt", "tls.key")))
        return moved

    monkeypatch.setattr(Path, "replace", step)
    write_pair(tmp_path / "new", ONE, NOW)
    assert seen[-1] == (True, True)
    assert set(seen) == {(False, False), (True, True)}


def test_plain_files_are_replaced_by_links(tmp_path: Path) -> None:
    (tmp_path / "tls.crt").write_bytes(ONE.certificate)
    (tmp_path / "tls.key").write_bytes(ONE.key)
    write_pair(tmp_path, TWO, NOW)
    assert read_pair(tmp_path) == TWO


def test_a_bad_pair_never_reaches_the_disk(tmp_path: Path) -> None:
    write_pair(tmp_path, ONE, NOW)
    with pytest.raises(InvalidPair, match="belongs to another certificate"):
        write_pair(tmp_path, Pair(TWO.certificate, ONE.key), NOW)
    assert read_pair(tmp_path) == ONE


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingPair, match=r"tls\.crt does not exist"):
        read_pair(tmp_path)
    (tmp_path / "tls.crt").write_bytes(ONE.certificate)
    assert fingerprint(tmp_path) is None
    with pytest.raises(MissingPair, match=r"tls\.key does not exist"):
        read_pair(tmp_path)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "tls.crt").mkdir()
    with pytest.raises(InvalidPair, match=r"tls\.crt cannot be read"):
        read_pair(tmp_path)


@pytest.mark.parametrize(
    ("pair", "why"),
    [
        (Pair(b"", b""), r"tls\.crt is not a PEM certificate"),
        (
            Pair(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", ONE.key),
            r"tls\.crt is not a PEM certificate",
        ),
        (Pair(ONE.certificate, b"x"), r"tls\.key is not an unencrypted PEM private key"),
        (Pair(ONE.certificate, TWO.key), r"tls\.key belongs to another certificate than tls\.crt"),
    ],
)
def test_an_invalid_pair_is_refused_with_a_reason(pair: Pair, why: str) -> None:
    with pytest.raises(InvalidPair, match=why):
        check_pair(pair)


def test_the_names_of_a_certificate_are_compared() -> None:
    leaf = check_pair(issue_leaf(AUTHORITY, ServingNames(dns=("one", "two"), addresses=("10.0.0.1",)), NOW))
    assert covers(leaf, ServingNames(dns=("one",), addresses=("10.0.0.1",)))
    assert not covers(leaf, ServingNames(dns=("three",)))
    assert not covers(leaf, ServingNames(addresses=("10.0.0.2",)))
    assert not covers(check_pair(AUTHORITY), ServingNames(dns=("a",)))
