from pathlib import Path

from fluxqueue.local.kubelet.agent import write_changed


def test_a_file_that_cannot_be_written_holds_up_no_other(tmp_path: Path) -> None:
    """A pod may do what it likes with its own hosts file."""
    closed, open_ = tmp_path / "closed", tmp_path / "open"
    closed.mkdir()
    written = write_changed({closed: "a", open_: "b", tmp_path / "gone" / "hosts": "c"}, {})
    assert (written, open_.read_text()) == ({open_: "b"}, "b")
    open_.write_text("kept")
    assert write_changed({open_: "b"}, written) == {open_: "b"}
    assert open_.read_text() == "kept"
