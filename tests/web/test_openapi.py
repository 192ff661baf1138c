"""The document that is published is what the server does: every answer is held against its schema."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tests.support.instance import Home
from tests.web.calling import Answer, call

from fairlead.web import openapi
from fairlead.web.routes import PREFIX, ROUTES, Route

DOCUMENT: dict[str, Any] = json.loads(Path(openapi.PATH).read_text(encoding="utf-8"))


def test_the_document_is_made_from_the_table() -> None:
    """Nobody has changed one without the other."""
    assert Path(openapi.PATH).read_text(encoding="utf-8") == openapi.text(), (
        "write it again: python -m fairlead.web.openapi"
    )


def test_the_document_is_sound() -> None:
    """All references lead somewhere, every operation has a name of its own."""
    names = [one["operationId"] for path in DOCUMENT["paths"].values() for one in path.values()]
    assert len(names) == len(set(names)) == len(ROUTES)
    references = set(_references(DOCUMENT))
    schemas = DOCUMENT["components"]["schemas"]
    assert {one.removeprefix("#/components/schemas/") for one in references} <= set(schemas)
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)


def _references(node: object) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
        return own + [one for value in node.values() for one in _references(value)]
    return [one for value in node for one in _references(value)] if isinstance(node, list) else []


class Client:
    """Asks, and holds every answer against the document."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.asked: set[tuple[str, str]] = set()

    def __call__(self, method: str, path: str, body: object = None, query: str = "", **parts: str) -> Any:  # noqa: ANN401
        """A good answer."""
        answer = self.ask(method, path, body, query, **parts)
        assert answer.status == 200, answer.data
        self.asked.add((method, path))
        good = self._operation(method, path)["responses"]["200"]
        if "application/octet-stream" in good["content"]:
            assert set(good["headers"]) <= set(answer.headers)
            return answer
        self._check(answer.json, good)
        return answer.json

    def refused(self, status: int, method: str, path: str, body: object = None, query: str = "", **parts: str) -> str:
        """An error's kind."""
        answer = self.ask(method, path, body, query, **parts)
        assert answer.status == status, answer.data
        self._check(answer.json, self._operation(method, path)["responses"]["default"])
        return answer.error[0]

    def ask(self, method: str, path: str, body: object, query: str, **parts: str) -> Answer:
        target = PREFIX + path.format(**parts) + (f"?{query}" if query else "")
        return call(self.home.paths.api, method, target, body)

    def _operation(self, method: str, path: str) -> Any:  # noqa: ANN401 - JSON
        return DOCUMENT["paths"][PREFIX + path][method.lower()]

    def _check(self, data: object, told: dict[str, Any]) -> None:
        schema = told["content"]["application/json"]["schema"] | {"components": DOCUMENT["components"]}
        jsonschema.Draft202012Validator(schema).validate(data)


@pytest.fixture
def client(api: Home) -> Client:
    return Client(api)


def test_every_route_answers_as_the_document_says(client: Client) -> None:
    """A task's whole life, locks and pauses, by every route there is."""
    home = client.home
    files = {"files": [{"name": "a.yaml", "content": "prompt: echo said; exit 3\nuser: ann\ntitle: Good"}]}
    [foretold] = client("POST", "/dry-run", files)["items"]
    assert (foretold["user"], foretold["agent"]) == ("ann", "shell")
    [done] = client("POST", "/tasks", files)["items"]
    task = done["id"]
    client("PATCH", "/tasks/{id}", {"priority": "high", "title": "Better"}, id=task)
    assert client("GET", "/tasks", query="status=queued&user=ann&limit=5")["items"][0]["title"] == "Better"
    assert client("GET", "/tasks/{id}/why", id=task)["obstacles"]
    assert client("GET", "/tasks/{id}/end", id=task)["is_over"] is False
    home.up()
    assert client("GET", "/tasks/{id}/end", query="wait=60", id=task) == {
        "id": task,
        "status": "failed",
        "is_over": True,
        "reason": "exit",
        "exit_code": 3,
        "has_started": True,
        "error": "the agent ended with exit code 3",
        "result": None,
    }
    piece = client("GET", "/tasks/{id}/logs/{stream}", id=task, stream="stdout")
    assert (piece.data, piece.headers["Fairlead-Next-Offset"], piece.headers["Fairlead-Is-Over"]) == (
        b"said\n",
        "5",
        "true",
    )
    assert client("GET", "/tasks/{id}", id=task)["events"]
    assert "events" not in client("GET", "/tasks/{id}", query="brief=true", id=task)
    client("POST", "/pauses", {"scope": "user:ann", "reason": "enough"})
    assert client("GET", "/pauses")["items"][0]["reason"] == "enough"
    assert client("POST", "/tasks/{id}/retry", {}, id=task)["status"] == "queued"
    assert client("POST", "/tasks/{id}/requeue", id=task)["was"] == "queued"
    assert client("POST", "/tasks/{id}/cancel", id=task)["status"] == "cancelled"
    assert client("DELETE", "/pauses/{scope}", scope="user:ann") == {"resumed": "user:ann", "was_paused": True}
    lock = client("POST", "/locks/{user}", user="bob")["lock"]
    assert client("GET", "/locks")["locks"] == [lock]
    assert client("DELETE", "/locks/{user}/{lock_id}", user="bob", lock_id="another") == {"released": False}
    assert client("DELETE", "/locks/{user}/{lock_id}", user="bob", lock_id=lock["lock_id"]) == {"released": True}
    assert client("POST", "/locks/{user}/release", {"force": True}, user="carl")["evidence"]
    client("GET", "/past-locks", query="limit=5")
    client("GET", "/events", query="last=5")
    client("GET", "/tasks/{id}/events", query="after=1&limit=2", id=task)
    client("GET", "/status")
    client("GET", "/capacity")
    assert client.asked == {(route.method, route.path) for route in ROUTES}


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_an_unknown_word_in_a_query_is_refused(client: Client, route: Route) -> None:
    """Whoever mistypes one is told."""
    parts = {"id": "x", "stream": "stdout", "user": "ann", "lock_id": "x", "scope": "all"}
    assert client.refused(400, route.method, route.path, {} if route.body else None, "nonsense=1", **parts) == "usage"


def test_errors_have_fitting_statuses(client: Client) -> None:
    """One shape for all of them, with what the command line would exit with."""
    task = client.home.submit()
    assert client.refused(404, "GET", "/tasks/{id}", id="nosuch") == "no_such_task"
    assert (
        client.refused(404, "GET", "/tasks/{id}/logs/{stream}", query="attempt=9", id=task, stream="stdout") == "no_log"
    )
    assert client.refused(400, "GET", "/tasks/{id}/logs/{stream}", id=task, stream="x") == "usage"
    assert client.refused(409, "POST", "/tasks/{id}/retry", {}, id=task)
    assert client.refused(409, "PATCH", "/tasks/{id}", {"title": "x", "version": 9}, id=task) == "stale_version"
    for body in (b"{", b"[]", b'{"files": []}', b"[" * 100_000, b'{"files": [{"name": "a", "content": 1}]}', b'"\xff"'):
        assert client.refused(400, "POST", "/tasks", body) == "usage"
    for query in ("limit=0", "limit=1001", "limit=x", "status=nonsense"):
        assert client.refused(400, "GET", "/tasks", query=query) == "usage"
    assert client.refused(400, "GET", "/events", query="wait=61") == "usage"
    assert client.ask("GET", "/nothing", None, "").error[0] == "no_such_path"
    assert client.ask("PUT", "/status", None, "").error[0] == "method_not_allowed"
    assert client.ask("GET", "/openapi.json", None, "").json == DOCUMENT
