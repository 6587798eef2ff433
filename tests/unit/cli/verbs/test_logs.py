import pytest

from fluxqueue.cli import plugin


@pytest.mark.parametrize(("text", "ranks"), [("0", {0}), ("0,4-6", {0, 4, 5, 6})])
def test_ranks_are_a_list(text: str, ranks: set[int]) -> None:
    assert plugin.plugin_parser(["logs"]).parse_args(["logs", "x", "--rank", text]).rank == ranks


@pytest.mark.parametrize(
    "words",
    [["--rank", "x"], ["--rank", "4-2"], ["--rank", "0-99999999"], ["--tail", "-1"], ["--since", "soon"]],
)
def test_what_cannot_be_read_is_one_sentence(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        plugin.main(["logs", "x", *words])
    assert len(capsys.readouterr().err.splitlines()) == 1
