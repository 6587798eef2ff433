"""One odd object does not keep the others of a list from being read."""

import json

from fluxqueue.api.miniclusters import MiniCluster
from fluxqueue.kube.decoding import decode, decode_page
from fluxqueue.minicluster.rules import find_problems

DEEP = '{"a":' * 9_000 + "1" + "}" * 9_000


def listed(name: str, template: str = "{}") -> str:
    spec = f'{{"containers":[{{"command":"a"}}],"podTemplate":{{"spec":{template}}}}}'
    return f'{{"metadata":{{"name":"{name}","namespace":"ada"}},"spec":{spec}}}'


def test_an_object_that_is_nested_too_deeply_is_decoded_without_its_inner_part() -> None:
    page = decode_page(f'{{"metadata":{{}},"items":[{listed("one")},{listed("deep", DEEP)}]}}'.encode(), MiniCluster, "list")
    assert [each.metadata.name for each in page.items] == ["one", "deep"]
    assert find_problems(page.items[0]).errors == ()
    assert "nested more than 32 deep" in find_problems(page.items[1]).errors[0]
    assert decode(listed("deep", DEEP).encode(), MiniCluster, "get").metadata.name == "deep"


def test_an_object_that_does_not_fit_is_left_out_and_named() -> None:
    body = {
        "metadata": {},
        "items": [{"metadata": {"name": "odd", "namespace": "ada"}, "spec": {"size": "four"}}, json.loads(listed("one"))],
    }
    page = decode_page(json.dumps(body).encode(), MiniCluster, "list")
    assert [each.metadata.name for each in page.items] == ["one"]
    assert ("ada", "odd") in page.undecodable
