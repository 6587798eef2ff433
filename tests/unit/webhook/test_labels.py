import pytest

from fluxqueue.webhook.labels import bad_labels


@pytest.mark.parametrize("key", ["rack", "example.com/rack", "a.b-c/D_e.f"])
def test_labels_that_an_object_can_carry_pass(key: str) -> None:
    assert list(bad_labels("spec.selector", {key: "r1", "zone": ""}, "no node can have it")) == []


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        ("a b", "c", "'a b' is no key"),
        ("-/x", "c", "'-/x' is no key"),
        ("x" * 64, "c", "is no key"),
        ("rack", "r 1", "'r 1' is no value of the label rack"),
    ],
)
def test_a_label_that_no_object_can_carry_is_named(key: str, value: str, what: str) -> None:
    (sentence,) = bad_labels("spec.selector", {key: value}, "no node can have it")
    assert what in sentence
    assert sentence.endswith("no node can have it: correct or remove it")
