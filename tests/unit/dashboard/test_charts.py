import json

from fluxqueue.dashboard.charts import Chart, Series, histogram, histograms, stacked


def test_values_are_counted_between_edges() -> None:
    chart = histogram("waits", "Waits", [0, 5, 10, 59, 60, 7_000], (10.0, 60.0))
    assert chart.rows == [("< 10s", "2 jobs"), ("10s to 1m", "2 jobs"), ("1m and more", "2 jobs")]
    assert "median 59s" in chart.note
    assert chart.words == "Waits: < 10s: 2 jobs; 10s to 1m: 2 jobs; 1m and more: 2 jobs"


def test_later_than_promised_is_marked() -> None:
    chart = histogram("errors", "Errors", [-5.0, 5.0], (-60.0, 0.0, 60.0), signed=True)
    assert chart.late == (False, False, True, True)
    assert chart.values == (0.0, 1.0, 1.0, 0.0)
    assert json.loads(chart.data)["late"] == [False, False, True, True]
    assert json.loads(chart.data)["labels"] == ["> 1m", "1m-0s", "0s-1m", "1m+"]
    assert chart.note == "median 5s later"


def test_nothing_to_count_is_a_chart_too() -> None:
    assert histogram("waits", "Waits", [], (10.0,)).note == "nothing to count"
    assert histograms("waits", "Waits", {}, (10.0,)).values == ()
    assert stacked("use", "Use", ["11-01"], {}, "core-hours").rows == []


def test_parts_are_in_the_order_of_their_size_and_said_in_words() -> None:
    chart = stacked("use", "Use", ["11-01", "11-02"], {"a": [1.0, 0.0], "b": [2.0, 4.3]}, "core-hours")
    assert [each.name for each in chart.parts] == ["b", "a"]
    assert chart.rows == [("11-01", "3 core-hours: b 2, a 1"), ("11-02", "4.3 core-hours: b 4.3")]
    assert chart.values == (3.0, 4.3)


def test_more_parts_than_colours_are_one_part() -> None:
    amounts = {f"account-{number}": [float(number)] for number in range(9)}
    chart = stacked("use", "Use", ["11-01"], amounts, "core-hours")
    assert [each.name for each in chart.parts] == [f"account-{n}" for n in (8, 7, 6, 5, 4)] + ["others"]
    assert chart.parts[-1].values == (6.0,)


def test_a_few_days_are_bars_and_more_are_areas() -> None:
    def kind(days: int) -> str:
        chart = stacked("use", "Use", ["11-01"] * days, {"a": [1.0] * days}, "hours", areas=True)
        assert json.loads(chart.data)["labels"][0] == "11-01"
        return str(json.loads(chart.data)["kind"])

    assert [kind(2), kind(3)] == ["stacks", "areas"]


def test_waits_of_queues_are_counted_apart() -> None:
    chart = histograms("waits", "Waits", {"batch": [1, 2, 90], "gpu": [90]}, (10.0, 60.0))
    assert chart.rows == [
        ("< 10s", "2 jobs: batch 2"),
        ("10s to 1m", "0 jobs"),
        ("1m and more", "2 jobs: batch 1, gpu 1"),
    ]
    assert chart.note == "median 90s"


def test_a_curve_is_said_in_words_and_in_a_table() -> None:
    times = tuple(range(0, 300 * 49, 300))
    chart = Chart(
        "use", "Use", times, (Series("Cores", [float(number) for number in range(49)], "%"),), most=100.0
    )
    assert chart.words == "Use over the last day: Cores now 48 %, lowest 0, highest 48"
    assert chart.samples == [(14_400, ["48 %"]), (7_200, ["24 %"]), (0, ["0 %"])]
    assert json.loads(chart.data)["most"] == 100.0
