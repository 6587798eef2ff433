import pytest

from fluxqueue.api.priorities import InvalidPriority, parse_priority


@pytest.mark.parametrize(
    ("text", "value"), [("0", 0), ("100", 100), ("-5", -5), ("+7", 7), ("1000000000", 1_000_000_000)]
)
def test_reads_a_whole_number(text: str, value: int) -> None:
    assert parse_priority(text) == value


@pytest.mark.parametrize(
    "text", ["", "high", "1.5", "1e3", "1000000001", "-1000000001", "9" * 5_000, " 1", "٣"]
)
def test_refuses_anything_else_and_says_what_would_be_understood(text: str) -> None:
    with pytest.raises(InvalidPriority, match="write a whole number"):
        parse_priority(text)
