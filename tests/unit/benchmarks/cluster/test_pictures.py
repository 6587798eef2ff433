from __future__ import annotations

from xml.etree import ElementTree as ET

from cluster.pictures import bars, pictures, stacks_of_bars
from cluster.report import PICTURES
from cluster.summary import Summary
from support.cluster_results import comparison, outcome

SVG = "{http://www.w3.org/2000/svg}"


def drawn(text: str, name: str) -> list[ET.Element]:
    return list(ET.fromstring(text).iter(f"{SVG}{name}"))


def test_a_comparison_gives_the_charts_that_the_report_shows() -> None:
    runs = [
        outcome("burst-600", name, {"queue": 3.0}, figures={"jobs_per_s": 10.0})
        for name in ("plain", "fluxqueue", "Kueue")
    ]
    charts = pictures(Summary(comparison(*runs)))
    assert set(charts) == set(PICTURES)
    assert len(drawn(charts["cluster-waits.svg"], "polyline")) == 3
    assert all(ET.fromstring(text).tag == f"{SVG}svg" for text in charts.values())


def test_charts_without_data_are_left_out() -> None:
    assert pictures(Summary(comparison(outcome("idle", "plain", jobs=0)))) == {}


def test_bars_have_heights_in_proportion() -> None:
    rects = [
        each
        for each in drawn(bars("t", {"a": {"x": 10.0, "y": 5.0}}), "rect")
        if float(each.get("width", "0").rstrip("%")) > 100
    ]
    high, low = (
        float(each.get("height", "0")) for each in rects if each.get("fill") in ("#1b6ca8", "#d1495b")
    )
    assert abs(high - 2 * low) < 0.2


def test_stacks_carry_their_sums_and_escape_their_names() -> None:
    chart = stacks_of_bars("t", {"s: <b>": {"x": 10.0, "y": 5.0}})
    assert "15" in [each.text for each in drawn(chart, "text")]
    assert "&lt;b&gt;" in chart
