import pytest

from fluxqueue.api import names
from fluxqueue.api.keys import unread_keys


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("fluxqueue/queu", "did you mean fluxqueue/queue?"),
        ("fluxqueue/Queue", "did you mean fluxqueue/queue?"),
        ("fluxqueue/podgroup", "did you mean fluxqueue/pod-group?"),
        ("fluxqueue/partition", "did you mean fluxqueue/queue?"),
        ("fluxqueue/colour", "remove it, or correct it (docs/reference/objects.md has those that are read)"),
    ],
)
def test_an_unknown_label_is_named_with_what_may_be_meant(key: str, meant: str) -> None:
    assert list(unread_keys({key: "x"}, None)) == [f"label {key} is unknown and has no effect: {meant}"]


def test_an_unknown_annotation_is_named_too() -> None:
    assert list(unread_keys(None, {"fluxqueue/durration": "2h", "fluxqueue/walltime": "2h"})) == [
        "annotation fluxqueue/durration is unknown and has no effect: did you mean fluxqueue/duration?",
        "annotation fluxqueue/walltime is unknown and has no effect: did you mean fluxqueue/duration?",
    ]


def test_what_stands_in_the_wrong_place_is_told() -> None:
    assert list(unread_keys({names.DURATION_ANNOTATION: "2h"}, {names.QUEUE_LABEL: "night"})) == [
        "label fluxqueue/duration has no effect: it is an annotation",
        "annotation fluxqueue/queue has no effect: it is a label",
    ]


def test_known_keys_and_those_of_others_are_not_mentioned() -> None:
    few = {names.MANAGED_LABEL: "true", names.GANG_ANNOTATION: "true", names.REPLACE_ANNOTATION: "pod"}
    known = {text: few.get(text, "x") for name, text in vars(names).items() if name.endswith("_LABEL")}
    annotations = {
        text: few.get(text, "x") for name, text in vars(names).items() if name.endswith("_ANNOTATION")
    }
    assert not list(
        unread_keys(known | {"app": "x", "example.com/fluxqueue": "x"}, annotations | {"note": "x"})
    )


def test_a_long_key_is_cut() -> None:
    (sentence,) = unread_keys({"fluxqueue/" + "x" * 300: ""}, None)
    assert len(sentence) < 200


@pytest.mark.parametrize(
    "key",
    ["fluxqueue.io/queue", "fluxqueue.org/queu", "flux-queue/queue", "fluxqeue/queue", "fluxqueu/Queue"],
)
def test_a_slip_in_the_prefix_is_told_too(key: str) -> None:
    (sentence,) = unread_keys({key: "night"}, None)
    assert sentence == f"label {key} is unknown and has no effect: did you mean fluxqueue/queue?"


@pytest.mark.parametrize(
    "key",
    [
        "fluxcd.io/queue",
        "flux-framework.org/queue",
        "example.com/queue",
        "queue",
        "fluxqueue.local/run-seconds",
    ],
)
def test_keys_of_others_are_none_of_ours(key: str) -> None:
    assert list(unread_keys({key: "x"}, {key: "x"})) == []


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("time-limit", "duration"),
        ("time_limit", "duration"),
        ("runtime", "duration"),
        ("prio", "priority"),
        ("queue_name", "queue"),
        ("pod-group-name", "pod-group"),
        ("start-after", "begin"),
    ],
)
def test_words_of_other_systems_are_understood(word: str, meant: str) -> None:
    (sentence,) = unread_keys(None, {f"fluxqueue/{word}": "x"})
    assert sentence.endswith(f"did you mean fluxqueue/{meant}?")


@pytest.mark.parametrize(
    ("labels", "annotations", "sentence"),
    [
        (
            {"fluxqueue/managed": "False"},
            {},
            "label fluxqueue/managed: 'False' has no effect: write 'true' or 'false'",
        ),
        (
            {"fluxqueue/managed": "no"},
            {},
            "label fluxqueue/managed: 'no' has no effect: write 'true' or 'false'",
        ),
        (
            {},
            {"fluxqueue/gang": "yes"},
            "annotation fluxqueue/gang: 'yes' has no effect: write 'true' or 'false'",
        ),
        (
            {},
            {"fluxqueue/replace": "pods"},
            "annotation fluxqueue/replace: 'pods' has no effect: write 'pod'",
        ),
    ],
)
def test_a_value_that_is_none_of_the_few_is_told(
    labels: dict[str, str], annotations: dict[str, str], sentence: str
) -> None:
    assert list(unread_keys(labels, annotations)) == [sentence]


def test_the_few_values_are_read() -> None:
    assert (
        list(
            unread_keys(
                {"fluxqueue/managed": "true"}, {"fluxqueue/gang": "false", "fluxqueue/replace": "pod"}
            )
        )
        == []
    )


def test_few_of_very_many_keys_are_compared_so_that_an_admission_stays_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    monkeypatch.setattr("fluxqueue.api.keys._closest", lambda word: asked.append(word))
    many = {f"fluxquee.io/{number}": "x" for number in range(1_000)} | {
        f"fluxqueue/{number}": "x" for number in range(1_000)
    }
    others = {f"example.com/{number}": "x" for number in range(1_000)}
    assert list(unread_keys({**others, **many}, {**others, **many})) == []
    assert len(asked) == 100
    assert len(list(unread_keys({**others, "fluxqueue/durration": "2h"}, None))) == 1
