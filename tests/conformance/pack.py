"""Packs recorded cases into the one file that this folder's test replays: ``python pack.py FOLDER``.

Only cases that are ours (``gen-*``, ``hand-*``) are taken; those made from another project's test data stay
where they are.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

PACKED = Path(__file__).parent / "cases.json.gz"


def pack(folder: Path) -> None:
    cases, graphs = [], {}
    for file in sorted(folder.glob("*.json")):
        for case in json.loads(file.read_text())["cases"]:
            if case["id"].startswith(("gen-", "hand-")):
                cases.append({key: value for key, value in case.items() if key not in ("v0_41_0", "source")})
                if "graph" in case:
                    graphs[case["graph"]] = json.dumps(
                        json.loads((folder / case["graph"]).read_text()), separators=(",", ":")
                    )
    text = json.dumps({"cases": cases, "graphs": graphs}, separators=(",", ":"))
    PACKED.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


if __name__ == "__main__":
    pack(Path(sys.argv[1]))
