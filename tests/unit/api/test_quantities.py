from decimal import Decimal

import pytest

from fluxqueue.api.quantities import InvalidQuantity, parse_quantity


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("100m", Decimal("0.1")),
        ("1.5", Decimal("1.5")),
        (".5", Decimal("0.5")),
        ("1.", 1),
        ("+3", 3),
        ("16Gi", 16 * 2**30),
        ("1k", 1000),
        ("1E", 10**18),
        ("1Ei", 2**60),
        ("1e3", 1000),
        ("12E2", 1200),
        ("5e-1", Decimal("0.5")),
        ("250u", Decimal("0.00025")),
        ("3n", Decimal("3e-9")),
        (2, 2),
        (0.5, Decimal("0.5")),
    ],
)
def test_quantities_are_read_exactly(text: str | int | float, value: int | Decimal) -> None:
    assert parse_quantity(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "lots",
        "1 Gi",
        "1gi",
        "1KI",
        "0x10",
        "1e",
        "1e1000",
        "1.2.3",
        "Gi",
        "inf",
        "nan",
        "1_000",
        "\uff11",
    ],
)
def test_what_is_no_quantity_is_refused_with_examples(text: str) -> None:
    with pytest.raises(InvalidQuantity, match="write 2, 500m"):
        parse_quantity(text)


@pytest.mark.parametrize("text", ["-1", "-0.1m", -3])
def test_less_than_nothing_is_refused(text: str | int) -> None:
    with pytest.raises(InvalidQuantity, match="negative"):
        parse_quantity(text)
