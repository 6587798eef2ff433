"""Lists as the text of Postgres arrays; that Postgres reads them back is in
tests/integration/queue/test_store_database.py.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from fluxqueue.api.fluxjobs import State
from fluxqueue.queue.store.arrays import array_text, with_array_texts


def test_every_kind_of_element_has_its_text() -> None:
    assert array_text([]) == "{}"
    assert array_text([1, -2, None]) == "{1,-2,NULL}"
    assert array_text([True, False]) == "{true,false}"
    assert (
        array_text(["", "NULL", 'a"b', "c\\d", "{e,f}", State.PENDING])
        == r'{"","NULL","a\"b","c\\d","{e,f}","Pending"}'
    )
    assert array_text([datetime(2026, 11, 23, 1, 2, 3, 4, UTC)]) == '{"2026-11-23T01:02:03.000004+00:00"}'


def test_an_element_of_another_type_is_refused() -> None:
    with pytest.raises(TypeError, match="an array of Postgres cannot hold 1.5"):
        array_text([1.5])


def test_only_lists_are_changed() -> None:
    assert with_array_texts({"ids": [1], "epoch": 7, "name": "x"}) == {"ids": "{1}", "epoch": 7, "name": "x"}
