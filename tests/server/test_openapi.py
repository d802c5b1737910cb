"""The description of the server: sound, complete, and of what its bodies really are."""

from __future__ import annotations

import msgspec
from openapi_spec_validator import validate

from perkey.server.app import routes
from tests.server.client import Client


async def test_it_is_valid_and_describes_every_route(client: Client) -> None:
    found = (await client.send("GET", "/openapi.json")).json
    validate(found)
    described = {
        (method.upper(), path): operation
        for path, operations in found["paths"].items()
        for method, operation in operations.items()
    }
    assert described.keys() == {(route.method, route.path) for route in routes()}
    for operation in described.values():
        assert operation["summary"].endswith(".")
    names = [operation["operationId"] for operation in described.values()]
    assert len(set(names)) == len(names)


async def test_parameters_are_those_of_the_routes(client: Client) -> None:
    found = (await client.send("GET", "/openapi.json")).json["paths"]
    for route in routes():
        told = found[route.path][route.method.lower()]["parameters"]
        names = [(each["in"], each["name"]) for each in told]
        assert len(set(names)) == len(names)
        assert [name for place, name in names if place == "query"] == [*route.query]
        wanted = [name[1:-1] for name in route.segments if name.startswith("{")]
        assert [name for place, name in names if place == "path"] == wanted
        key = {each["name"]: each["required"] for each in told}.get("Idempotency-Key")
        optional = route.replayable or route.keeps_key
        assert key is (False if optional else {True: True, False: None}[route.keyed])


async def test_bodies_are_those_that_are_decoded(client: Client) -> None:
    whole = (await client.send("GET", "/openapi.json")).json
    for route in routes():
        body = whole["paths"][route.path][route.method.lower()].get("requestBody")
        if route.takes is None:
            assert (body is None) == (not route.media)
            continue
        assert body is not None
        name = body["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        schema = whole["components"]["schemas"][name]
        fields = {field.encode_name for field in msgspec.structs.fields(route.takes)}
        assert schema["properties"].keys() == fields
        assert schema["additionalProperties"] is False
