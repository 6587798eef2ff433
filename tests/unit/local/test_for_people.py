from fluxqueue.local.for_people import dashboard_lines, where_results_are

URL = "https://127.0.0.1:8445"


def test_the_address_of_the_dashboard_comes_with_the_way_in() -> None:
    lines = dashboard_lines(URL)
    assert lines[0].startswith(URL)
    assert "kubectl create token" in lines[1]


def test_results_are_in_the_dashboard_as_long_as_it_runs() -> None:
    assert where_results_are(URL, keep=True).endswith(f" {URL}/queue?q=pi")
    assert "KEEP=1 make demo leaves it running" in where_results_are(URL, keep=False)
