from __future__ import annotations

from pathlib import Path

from support.page_objects import page_objects

PAGE = """Text

```yaml
kind: A
---
kind: B
```

```yaml
spec:
  policy: easy
```

<!-- for sites: a cluster with more -->
```yaml
kind: C
```

```yaml
apiVersion: kubescheduler.config.k8s.io/v1
kind: D
```

```python
kind = "E"
```
"""


def test_objects_are_found_with_their_place_and_parts_become_queues(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    assert [each.title for each in page_objects(page)] == [
        "page.md:3 A",
        "page.md:3 B",
        "page.md:9 FluxQueue",
    ]
