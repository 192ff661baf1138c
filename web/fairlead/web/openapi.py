"""The OpenAPI document, made from the table of routes; `python -m fairlead.web.openapi` writes it."""

import json
import os
import re
from typing import Any

import msgspec

from fairlead.web.routes import PREFIX, ROUTES, Route
from fairlead.web.schemas import Error

PATH = os.path.join(os.path.dirname(__file__), "openapi.json")
_REF = "#/components/schemas/{name}"
_HEADERS = {
    "Fairlead-Attempt": "the attempt that wrote it",
    "Fairlead-Next-Offset": "where the next piece begins",
    "Fairlead-Is-Over": "true if the task has ended for good: an empty piece is the end then",
}


def document() -> dict[str, Any]:
    """The whole document."""
    structs = {one for route in ROUTES for one in (route.answer, route.body) if one is not None} | {Error}
    ordered = sorted(structs, key=lambda one: one.__name__)
    _, components = msgspec.json.schema_components(ordered, ref_template=_REF)
    paths: dict[str, Any] = {}
    for route in ROUTES:
        paths.setdefault(PREFIX + route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Fairlead",
            "version": "1",
            "description": "A queue for hosts that several people share. Who asks is known by the kernel's word about"
            " the socket's peer; docs/api.md has examples.",
        },
        "servers": [{"url": "http://localhost", "description": "through the unix socket, like curl --unix-socket"}],
        "paths": paths,
        "components": {"schemas": components},
    }


def _operation(route: Route) -> dict[str, Any]:
    words = [word for word in re.split(r"[^a-z]+", route.path) if word]
    told: dict[str, Any] = {
        "operationId": "_".join([route.method.lower(), *words]),
        "summary": route.summary,
        "parameters": [*_path_parameters(route), *_query_parameters(route)],
        "responses": {"200": _good(route), "default": _json("What is wrong", Error)},
    }
    if route.body is not None:
        told["requestBody"] = {"required": _is_required(route), "content": _content(route.body)}
    return told


def _is_required(route: Route) -> bool:
    return any(field.required for field in msgspec.structs.fields(route.body)) if route.body else False


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    names = re.findall(r"\{(\w+)\}", route.path)
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _query_parameters(route: Route) -> list[dict[str, Any]]:
    schema = msgspec.json.schema(route.query)["$defs"][route.query.__name__]
    return [{"name": name, "in": "query", "schema": shape} for name, shape in schema["properties"].items()]


def _good(route: Route) -> dict[str, Any]:
    if route.answer is not None:
        return _json(route.summary, route.answer)
    headers = {name: {"description": text, "schema": {"type": "string"}} for name, text in _HEADERS.items()}
    return {"description": route.summary, "headers": headers, "content": {"application/octet-stream": {}}}


def _json(what: str, shape: type[msgspec.Struct]) -> dict[str, Any]:
    return {"description": what, "content": _content(shape)}


def _content(shape: type[msgspec.Struct]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _REF.format(name=shape.__name__)}}}


def text() -> str:
    """The document as the file has it."""
    return json.dumps(document(), indent=1) + "\n"


if __name__ == "__main__":
    with open(PATH, "w", encoding="utf-8") as file:
        file.write(text())
