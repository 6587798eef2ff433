"""What the node table keeps is what a new look at all nodes would find."""

from __future__ import annotations

import json
import random

import pytest
from support.fluxion_builders import NOW, ask, engine, jobspec, node, slot

from fluxqueue.api.graphnames import taint_property
from fluxqueue.api.nodes import Taint
from fluxqueue.fluxion.changes import AddNodes, RemoveNodes, SetProperties
from fluxqueue.fluxion.graph import constraints
from fluxqueue.fluxion.graph.constraints import ConstraintSubject, read_constraint
from fluxqueue.fluxion.messages import MatchVerdict

TAINT = taint_property(Taint(key="gone", effect="NoSchedule"))


def test_a_changed_node_alone_is_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made, checked = engine(*(node(f"n{number}", cpu=400) for number in range(20))), list[str]()
    real = constraints._Tolerates.accepts

    def accepts(self: constraints._Tolerates, subject: ConstraintSubject) -> bool:
        checked.append(subject.name)
        return real(self, subject)

    monkeypatch.setattr(constraints._Tolerates, "accepts", accepts)
    wanted = jobspec(slot(1, cpu=100), constraints={"tolerates": []})
    assert ask(made, wanted, 1).shares[0].node == "n0"
    checked.clear()
    made.apply([SetProperties({"n0": {TAINT: ""}})], NOW)
    assert ask(made, wanted, 2).shares[0].node == "n1"
    assert checked == ["n0"]


def test_the_nodes_that_a_constraint_accepts_follow_all_changes_of_the_graph() -> None:
    rng, made = random.Random(7), engine(*(node(f"n{number}", cpu=400) for number in range(5)))
    texts = ('{"properties": ["a"]}', '{"tolerates": []}', '{"not": [{"properties": ["b"]}]}')
    wanted = [read_constraint(json.loads(text)) for text in texts]
    for number in range(400):
        name = f"n{rng.randrange(12)}"
        match rng.randrange(4):
            case 0:
                made.apply([AddNodes([node(name, cpu=400, labels=tuple(rng.sample("abc", 2)))])], NOW)
            case 1 if len(made.state.graph.nodes) > 2:
                made.apply([RemoveNodes([name])], NOW)
            case _ if name in made.state.graph.by_name:
                made.apply(
                    [
                        SetProperties(
                            {name: dict.fromkeys(rng.sample(["a", "b", TAINT], rng.randrange(3)), "")}
                        )
                    ],
                    NOW,
                )
        table = made.state.table
        constraint = wanted[rng.randrange(3)]
        assert constraint is not None
        assert table.accepted(constraint).tolist() == [constraint.accepts(each) for each in table.nodes], (
            number
        )
        assert bool(table.taints) is any(TAINT in each.properties for each in table.nodes)


def test_the_taints_of_a_new_node_are_named() -> None:
    made, wants = engine(node("a", cpu=400)), jobspec(slot(1, cpu=800), constraints={"tolerates": []})
    assert ask(made, wants, 1).verdict is MatchVerdict.UNSATISFIABLE
    made.apply([AddNodes([node("b", cpu=800, labels=(TAINT,))])], NOW)
    assert "without the taint gone=:NoSchedule" in ask(made, wants, 1).reason
