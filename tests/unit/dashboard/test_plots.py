from fluxqueue.dashboard.plots import HEIGHT, WIDTH, histogram, series


def test_values_are_counted_between_edges() -> None:
    plot = histogram("Waits", [0, 5, 10, 59, 60, 7_000], (10.0, 60.0))
    assert [(column.label, column.value) for column in plot.columns] == [("< 10s", "2"), ("10s to 60s", "2"), ("60s and more", "2")]
    assert "median 59s" in plot.note
    assert plot.words == "Waits: < 10s: 2; 10s to 60s: 2; 60s and more: 2"


def test_later_than_promised_is_marked() -> None:
    plot = histogram("Errors", [-5.0, 5.0], (-60.0, 0.0, 60.0), signed=True)
    assert [column.late for column in plot.columns] == [False, False, True, True]
    assert [column.value for column in plot.columns] == ["0", "1", "1", "0"]


def test_nothing_to_count_is_a_plot_too() -> None:
    plot = histogram("Waits", [], (10.0,))
    assert plot.note == "nothing to count"
    assert {column.height for column in plot.columns} == {0.0}
    assert series("Use", [], "core-hours").columns == ()


def test_bars_stay_inside_of_the_plot() -> None:
    plot = series("Use", [("11-01", 3.0), ("11-02", 7.3), ("11-03", -1.0), ("11-04", float("inf"))][:3], "core-hours", "note")
    for column in plot.columns:
        assert 0 <= column.x <= column.x + column.width <= WIDTH
        assert 0 <= column.y <= HEIGHT
        assert column.height <= HEIGHT
    assert plot.columns[1].value == "7.3 core-hours"
    assert [text for _, text in plot.axis] == ["0", "2", "4", "6", "8"]
