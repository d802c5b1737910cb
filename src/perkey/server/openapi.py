"""``/openapi.json``: what the table of routes and the types of bodies say, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.responses import Response

import perkey
from perkey.server import processes
from perkey.server.calls import JSON, Call
from perkey.server.listing import MOST
from perkey.server.problems import MEDIA
from perkey.server.replies import json_reply
from perkey.server.routes import Route

REF = "#/components/schemas/{name}"
TEXTS = {"prefix", "after", "path"}
PARAMETERS: dict[str, dict[str, Any]] = {
    "limit": {"type": "integer", "minimum": 1, "maximum": MOST},
    "values": {"type": "boolean"},
    "from": {"type": "integer", "minimum": 0, "maximum": 2**63 - 1},
    "to": {"type": "integer", "minimum": 0, "maximum": 2**63 - 1},
    "wait": {"type": "integer", "minimum": 0, "maximum": processes.MAX_WAIT_S},
    "state": {"enum": processes.STATES},
}
NUMBERED = ("/history", "/statement")
"""Where ``after`` is a number."""
PROBLEM: dict[str, Any] = {
    "type": "object",
    "required": ["type", "title", "status", "code", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string"},
        "detail": {"type": "string"},
    },
}


async def openapi(call: Call) -> Response:
    """This server's description, OpenAPI 3.1."""
    return json_reply(describe(call.services.routes))


def describe(routes: Sequence[Route]) -> dict[str, Any]:
    """The description of these routes."""
    kinds = [*dict.fromkeys(route.takes for route in routes if route.takes is not None)]
    _, schemas = msgspec.json.schema_components(kinds, ref_template=REF)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "perkey", "version": perkey.__version__},
        "paths": paths,
        "components": {
            "schemas": {**schemas, "Problem": PROBLEM},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    about = " ".join((route.handler.__doc__ or "").split())
    found: dict[str, Any] = {
        "operationId": f"{route.method.lower()}_{_slug(route.path)}",
        "summary": about,
        "parameters": _parameters(route),
        "responses": _responses(route),
    }
    if route.role is not None:
        found["security"] = [{}, {"token": []}]
    content = _content(route)
    if content:
        found["requestBody"] = {"required": True, "content": content}
    return found


def _slug(path: str) -> str:
    kept = "".join(c if c.isalnum() else "_" for c in path)
    return "_".join(part for part in kept.split("_") if part)


def _content(route: Route) -> dict[str, Any]:
    if route.takes is not None:
        return {JSON: {"schema": {"$ref": REF.format(name=route.takes.__name__)}}}
    return {media: {"schema": schema} for media, schema in route.media.items()}


def _parameters(route: Route) -> list[dict[str, Any]]:
    found = [_path_parameter(name[1:-1]) for name in route.segments if name.startswith("{")]
    for name in route.query:
        schema = PARAMETERS.get(name, {"type": "string"})
        if name == "after" and route.path.endswith(NUMBERED):
            schema = {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}
        required = name in ("from", "to")
        found.append({"name": name, "in": "query", "required": required, "schema": schema})
    names = ["Perkey-By"] if route.role == "write" else []
    if route.conditional:
        names += ["If-Match", "If-None-Match"]
    names += ["Prefer"] * (route.method == "PUT" and route.conditional)
    names += ["Idempotency-Key"] * (route.keyed or route.keeps_key or route.replayable)
    for name in names:
        required = name == "Idempotency-Key" and route.keyed
        schema = {"type": "string", "maxLength": 200}
        found.append({"name": name, "in": "header", "required": required, "schema": schema})
    return found


def _path_parameter(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": 512}
    if name == "version":
        schema = {"type": "integer", "minimum": 1, "maximum": 2**63 - 1}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _responses(route: Route) -> dict[str, Any]:
    problem = {"schema": {"$ref": REF.format(name="Problem")}}
    return {
        "2XX": {"description": "Done."},
        "304": {"description": "The caller has this version."},
        "4XX": {"description": "Refused; nothing was done.", "content": {MEDIA: problem}},
        "5XX": {"description": "Not done, or unknown.", "content": {MEDIA: problem}},
    }


ROUTES = [Route("GET", "/openapi.json", openapi, None)]
