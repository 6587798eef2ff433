import argparse

import pytest

from fluxqueue.cli.custom_columns import cell, read_custom_columns

DOCUMENT = {
    "metadata": {"name": "lammps", "labels": {"app.kubernetes.io/name": "md"}},
    "items": [{"name": "a", "on": True}, {"name": "b", "n": 2}],
    "none": None,
}


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (".metadata.name", "lammps"),
        ("{.metadata.name}", "lammps"),
        (r".metadata.labels.app\.kubernetes\.io/name", "md"),
        (".items[1].name", "b"),
        (".items[-1].n", "2"),
        (".items[*].name", "a,b"),
        (".items[0].on", "true"),
        (".items[9].name", "<none>"),
        (".nothing.here", "<none>"),
        (".none", "<none>"),
        (".metadata.labels", '{"app.kubernetes.io/name": "md"}'),
    ],
)
def test_a_path_leads_to_the_text_that_kubectl_prints(path: str, text: str) -> None:
    (column,) = read_custom_columns(f"X:{path}")
    assert (column.title, cell(DOCUMENT, column.path)) == ("X", text)


@pytest.mark.parametrize(
    "text", ["", "NAME", "NAME:", ":.metadata.name", "A:.a,B", "A:.a[x]", "A:.a[?(@.b)]"]
)
def test_what_is_no_column_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="such as"):
        read_custom_columns(text)
