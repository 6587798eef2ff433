import io

import pytest

from fluxqueue.cli.api_client import ClusterError
from fluxqueue.cli.confirmation import confirmed


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


MANY = [f"job/{n}" for n in range(7)]


@pytest.mark.parametrize(
    ("answer", "agreed"), [("y\n", True), ("YES\n", True), ("\n", False), ("n\n", False), ("", False)]
)
def test_a_person_is_asked_before_many_are_changed(answer: str, agreed: bool) -> None:
    asked = io.StringIO()
    assert confirmed("cancel", MANY, yes=False, asked=asked, answers=Terminal(answer)) is agreed
    assert (
        asked.getvalue()
        == "This will cancel 7 workloads: job/0, job/1, job/2, job/3, job/4 and 2 more.\nContinue? [y/N] "
    )


def test_one_workload_or_a_yes_needs_no_question() -> None:
    assert confirmed("cancel", ["job/a"], yes=False, answers=io.StringIO())
    assert confirmed("cancel", MANY, yes=True, answers=io.StringIO())


def test_a_script_has_to_say_yes() -> None:
    with pytest.raises(ClusterError, match="this would cancel 7 workloads: add --yes"):
        confirmed("cancel", MANY, yes=False, answers=io.StringIO())
