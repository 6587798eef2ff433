import json

from fluxqueue.dashboard.charts import Chart, Series, histogram, series


def test_values_are_counted_between_edges() -> None:
    chart = histogram("waits", "Waits", [0, 5, 10, 59, 60, 7_000], (10.0, 60.0))
    assert chart.rows == [("< 10s", "2 jobs"), ("10s to 60s", "2 jobs"), ("60s and more", "2 jobs")]
    assert "median 59s" in chart.note
    assert chart.words == "Waits: < 10s: 2 jobs; 10s to 60s: 2 jobs; 60s and more: 2 jobs"


def test_later_than_promised_is_marked() -> None:
    chart = histogram("errors", "Errors", [-5.0, 5.0], (-60.0, 0.0, 60.0), signed=True)
    assert chart.late == (False, False, True, True)
    assert chart.values == (0.0, 1.0, 1.0, 0.0)
    assert json.loads(chart.data)["late"] == [False, False, True, True]


def test_nothing_to_count_is_a_chart_too() -> None:
    assert histogram("waits", "Waits", [], (10.0,)).note == "nothing to count"
    assert series("use", "Use", [], "core-hours").rows == []


def test_bars_have_their_values_in_words() -> None:
    chart = series("use", "Use", [("11-01", 3.0), ("11-02", 7.3)], "core-hours", "note")
    assert chart.rows == [("11-01", "3 core-hours"), ("11-02", "7.3 core-hours")]
    assert json.loads(chart.data)["labels"] == ["11-01", "11-02"]


def test_a_curve_is_said_in_words_and_in_a_table() -> None:
    times = tuple(range(0, 300 * 49, 300))
    chart = Chart(
        "use", "Use", times, (Series("Cores", [float(number) for number in range(49)], "%"),), most=100.0
    )
    assert chart.words == "Use over the last day: Cores now 48 %, lowest 0, highest 48"
    assert chart.samples == [(14_400, ["48 %"]), (7_200, ["24 %"]), (0, ["0 %"])]
    assert json.loads(chart.data)["most"] == 100.0
