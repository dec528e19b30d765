"""The contract of the server, as OpenAPI 3.1: the files' own JSON Schemas, and what is around them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

__all__ = ["openapi"]

_LIMITS = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "seconds": {"type": "number", "minimum": 0, "description": "at most what the server allows"},
        "work": {"type": "integer", "minimum": 1},
        "gap": {"type": "number", "minimum": 0, "maximum": 1},
        "seed": {"type": "integer", "minimum": 0},
    },
}
_TEXT = {"type": "string"}
_FAULT = {"type": "object", "properties": dict.fromkeys(("file", "path", "value", "why", "remedy"), _TEXT)}
_SAID = {"status": {"type": "integer"}, "reason": _TEXT, "faults": {"type": "array", "items": _FAULT}}
_ERROR = {
    "type": "object",
    "properties": {"error": {"type": "object", "required": ["status", "reason"], "properties": _SAID}},
}
_NAME = {"name": "name", "in": "path", "required": True, "schema": _TEXT}
_ERRORS = {
    "400": "not a JSON object",
    "401": "no token, or a wrong one",
    "409": "stopped, or an id in use",
    "413": "too large",
    "415": "not application/json",
    "422": "faults in the documents, each with path and remedy",
    "429": "too many requests wait",
    "504": "its time was over",
}


@lru_cache(maxsize=2)
def openapi(version: str = "") -> dict[str, Any]:
    """The whole document.

    >>> sorted(path for path in openapi()["paths"] if path.startswith("/v1/s"))
    ['/v1/simulate', '/v1/solve']
    """
    profile = {"oneOf": [_ref("Profile"), {"type": "array", "items": _ref("Profile"), "minItems": 1}]}
    files = {"profile": profile, "slo": _ref("Slo"), "state": _ref("State"), "measured": {"type": "object"}}
    text, count = _TEXT, {"type": "integer", "minimum": 0}
    solve = files | {"question": text, "formulation": text, "options": {"type": "object"}, "limits": _LIMITS}
    played = {"seeds": count | {"minimum": 1}, "seed": count, "duration_s": {"type": "number"}}
    played |= {"noise": text, "arrivals": text}
    with_plan = files | {"plan": _ref("Plan")}
    solve |= {name: {"type": "boolean"} for name in ("require_proof", "quick", "page")}
    found: dict[str, Any] = dict.fromkeys(("reason", "status", "html"), text)
    found |= {name: {"type": "integer"} for name in ("exit", "ms")}
    found |= {"summary": {"type": ["object", "null"]}, "plan": {"oneOf": [_ref("Plan"), {"type": "null"}]}}
    found |= {name: {"type": "array"} for name in ("why", "repairs", "claims", "warnings", "violations")}
    all_three = ["plan", "profile", "slo"]
    verdict: dict[str, Any] = {"ok": {"type": "boolean"}, "unchecked": {"type": "boolean"}, "reason": text}
    verdict |= {name: {"type": "array"} for name in ("violations", "checked", "skipped", "claims", "simulated")}
    return {
        "openapi": "3.1.0",
        "info": {"title": "hetplan", "version": version, "description": "Proved and verified plans, by request."},
        "security": [{"bearer": []}, {"query": []}],
        "paths": {
            "/v1/solve": _post("Make a plan", solve, ["profile", "slo"], found),
            "/v1/verify": _post("Verify a plan", with_plan, all_three, verdict),
            "/v1/simulate": _post("Play a plan", with_plan | played, all_three, {"ok": {"type": "boolean"}}),
            "/v1/report": _post("Draw a plan as a page", with_plan, all_three, {"html": text}),
            "/v1/requests/{name}": {
                verb: {
                    "summary": summary,
                    "parameters": [_NAME],
                    "responses": {code: {"description": done}, "404": {"description": "none under way"}},
                }
                for verb, summary, code, done in (
                    ("get", "What the work of this X-Request-Id is at", "200", "it"),
                    ("delete", "Stop the work of the request that had this X-Request-Id", "202", "asked to stop"),
                )
            },
            "/v1/health": _get("Whether the server answers; needs no token"),
            "/v1/metrics": _get("Counts in Prometheus' text format"),
            "/v1/openapi.json": _get("This document"),
        },
        "components": {
            "schemas": {**_schemas(), "Error": _ERROR},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "query": {"type": "apiKey", "in": "query", "name": "token"},
            },
        },
    }


def _schemas() -> dict[str, Any]:
    """The files' schemas with all that they refer to, each part under the name of its file."""
    from hetplan.profiles.read_plan import plan_schema
    from hetplan.profiles.schema import schema

    files = {"Profile": schema("profile"), "Slo": schema("slo"), "State": schema("state"), "Plan": plan_schema()}
    found: dict[str, Any] = {}
    for name, whole in files.items():
        parts = whole.get("$defs", {})
        held = {name: {key: value for key, value in whole.items() if key not in ("$defs", "$schema", "$id")}}
        held |= {f"{name}.{part}": content for part, content in parts.items()}
        found |= {title: _moved(content, name) for title, content in held.items()}
    return found


def _moved(schema: Any, file: str) -> Any:
    """The schema with what it refers to where it is now."""
    if isinstance(schema, dict):
        return {key: _moved(value, file) for key, value in schema.items()}
    if isinstance(schema, list):
        return [_moved(value, file) for value in schema]
    if isinstance(schema, str) and schema.startswith("#/$defs/"):
        return f"#/components/schemas/{file}.{schema.removeprefix('#/$defs/')}"
    return schema


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _post(summary: str, fields: dict[str, Any], required: list[str], answer: dict[str, Any]) -> dict[str, Any]:
    body = {"type": "object", "additionalProperties": False, "required": required, "properties": fields}
    errors = {
        code: {"description": why, "content": {"application/json": {"schema": _ref("Error")}}}
        for code, why in _ERRORS.items()
    }
    found = {"application/json": {"schema": {"type": "object", "properties": answer}}}
    named = {"name": "X-Request-Id", "in": "header", "schema": {"type": "string", "maxLength": 64}}
    return {
        "post": {
            "summary": summary,
            "parameters": [named],
            "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
            "responses": {"200": {"description": "the answer", "content": found}, **errors},
        }
    }


def _get(summary: str) -> dict[str, Any]:
    return {"get": {"summary": summary, "responses": {"200": {"description": "it"}}}}
