"""The program in a pod of the executor: it unpickles a function with its arguments, calls it, and hands the
results over.

It is packed with `fluxqueue.client.frames` and cloudpickle into one file (`fluxqueue.client.calls`), so an
image needs only Python, of the same minor version as the client, since pickled functions contain bytecode. It
imports the standard library, and cloudpickle from that file.

    python worker.pyz TERMINATION-LOG

where ``-`` stands for none: then every result is in the output, as inside a Flux instance.

Beside it are ``key``, ``settings.json``, and ``task-<index>`` for each completion index. What a call returns
or raises is a result, so the program ends with 0. Any other end means that there is no result.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import traceback
from pathlib import Path
from typing import Any

__all__ = ["main", "outcome_of", "report"]

Outcome = tuple[str, bytes, str]
"""How a call ended, the pickled value or exception, and the text of the traceback or problem.

``returned``; ``raised``; ``unpicklable``: it raised what cannot be pickled; ``unreturnable``: it returned
what cannot be; ``refused``: its result is too large; ``unloadable``: it could not be called.
"""


def main(argv: list[str]) -> int:
    """Run the task of this pod.

    Parameters
    ----------
    argv
        The path of this program, and that of the termination log.
    """
    folder = Path(argv[0]).resolve().parent
    index = os.environ.get("JOB_COMPLETION_INDEX", "0")
    settings = json.loads((folder / "settings.json").read_text())
    mine = ".".join(map(str, sys.version_info[:2]))
    if settings["python"] != mine:
        problem = (
            f"the image has Python {mine}, and the client {settings['python']}: "
            "use an image with the same minor version"
        )
        outcomes: list[Outcome] = [("unloadable", b"", problem)]
    else:
        outcomes = _run((folder / f"task-{index}").read_bytes())
    sys.stdout.flush()
    sys.stderr.flush()
    report(
        outcomes,
        settings,
        (folder / "key").read_bytes(),
        f"{settings['task']}.{index}",
        Path(argv[1]) if argv[1] != "-" else None,
    )
    return 0


def report(
    outcomes: list[Outcome], settings: dict[str, Any], key: bytes, task: str, termination_log: Path | None
) -> None:
    """Hand the outcomes over: as termination message if they are small, else in the log."""
    from frames import MAX_MESSAGE, log_lines, sealed  # type: ignore[import-not-found]  # beside this module in the packed file

    payload = pickle.dumps(outcomes)
    if len(payload) > settings["max_bytes"]:
        problem = (
            f"the result of this task has {len(payload)} bytes, and at most {settings['max_bytes']} are "
            "returned: write it to a volume or an object store and return where it is, "
            "use smaller chunks, or raise max_result_bytes"
        )
        payload = pickle.dumps([("refused", b"", problem)] * len(outcomes))
    text = sealed(payload, key, task)
    if termination_log is not None and len(text) <= MAX_MESSAGE:
        termination_log.write_text(text)
        return
    # One line break first, because the call may have printed an incomplete line.
    data = ("\n" + "\n".join(log_lines(text, task)) + "\n").encode()
    while data:
        data = data[os.write(1, data) :]


def outcome_of(function: Any, args: Any, kwargs: Any) -> Outcome:
    """Call a function, and return its outcome; only what ends the process ends this."""
    try:
        value = function(*args, **kwargs)
    except BaseException as error:
        text = "".join(traceback.format_exception(error))
        try:
            pickled = _pickled(error)
            pickle.loads(pickled)  # noqa: S301  our own bytes: many exceptions can be pickled and not be read again
        except Exception:
            return ("unpicklable", b"", text)
        return ("raised", pickled, text)
    try:
        return ("returned", _pickled(value), "")
    except Exception as error:
        name = type(value).__qualname__
        return (
            "unreturnable",
            b"",
            f"the call returned a {name} that cannot be pickled ({error}): return plain data",
        )


def _run(task: bytes) -> list[Outcome]:
    try:
        function, calls = pickle.loads(task)  # noqa: S301  what the client wrote into the Secret of this Job
    except Exception as error:
        problem = f"the function cannot be loaded in this image ({type(error).__name__}: {error})"
        helps = "use an image that has its modules, or ship them with cloudpickle.register_pickle_by_value"
        return [("unloadable", b"", f"{problem}: {helps}")]
    return [outcome_of(function, args, kwargs) for args, kwargs in calls]


def _pickled(value: Any) -> bytes:
    import cloudpickle

    return bytes(cloudpickle.dumps(value))


if __name__ == "__main__":
    sys.exit(main(sys.argv))
