from __future__ import annotations

from reference_proto import proto_page, proto_text

from fluxqueue.proto.v1 import fluxion_pb2

SOURCE = """// The service.
syntax = "proto3";

service S {
  // Asks.
  rpc Ask(Question) returns (Answer);
}

// What is asked.
message Question {
  // In words.
  repeated string text = 1;  // not empty
  oneof way { }
  map<string, int32> marks = 2;
}

message Answer {}
"""


def test_calls_and_messages_have_their_comments() -> None:
    page = proto_text(SOURCE)
    assert "\nThe service.\n" in page
    assert "| `Ask` | [Question](#question) | [Answer](#answer) |" in page
    assert "## Question\n\nWhat is asked.\n" in page
    assert "| 1 | `text` | `repeated string` | In words. not empty |" in page
    assert "| 2 | `marks` | `map<string, int32>` |  |" in page


def test_every_message_and_field_of_the_service_is_on_the_page() -> None:
    page = proto_page()
    for name, message in fluxion_pb2.DESCRIPTOR.message_types_by_name.items():
        assert f"\n## {name}\n" in page
        section = page.split(f"\n## {name}\n")[1].split("\n## ")[0]
        assert [
            field.name for field in message.fields if f"| {field.number} | `{field.name}` |" not in section
        ] == [], name
    for method in fluxion_pb2.DESCRIPTOR.services_by_name["FluxionService"].methods:
        assert f"| `{method.name}` |" in page
