"""`POST /api/annotate`, `/api/tag` and `/api/request`: the only writes. Tags, notes, exclusions; run, pause and stop.

The answer to a change of annotations says how they were `before`, trial by trial, so that a page can take it back.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from starlette.routing import BaseRoute

from protein.errors import UsageError
from protein.types import Request
from protein.web.answers import post
from protein.web.frame import Frame
from protein.web.viewer import Viewer

MAX_NUMBERS = 10_000  # trials that one request changes
_LISTS = ("tags", "add_tags", "remove_tags")


def routes(viewer: Viewer) -> list[BaseRoute]:
    def annotate(given: Mapping[str, Any]) -> dict[str, Any]:
        sweep = viewer.sweep(_text(given, "sweep"))
        numbers = given.get("numbers")
        if not isinstance(numbers, list) or not 1 <= len(numbers) <= MAX_NUMBERS:
            raise UsageError(f"numbers must be a list of 1 to {MAX_NUMBERS} trials")
        if not all(type(number) is int and 0 <= number < 2**31 for number in numbers):
            raise UsageError("numbers must hold numbers of trials")
        unknown = set(given) - {"sweep", "numbers", "note", "excluded", *_LISTS}
        if unknown:
            raise UsageError(f"'{min(unknown)[:80]}' cannot be changed; give tags, note or excluded")
        changes: dict[str, Any] = {}
        for name in _LISTS:
            if name in given:
                tags = given[name]
                if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
                    raise UsageError(f"{name} must be a list of texts")
                changes[name] = tags
        if "note" in given:
            changes["note"] = _text(given, "note")
        if "excluded" in given:
            if not isinstance(given["excluded"], bool):
                raise UsageError("excluded must be true or false")
            changes["excluded"] = given["excluded"]
        if not changes:
            raise UsageError("nothing is to be changed; give tags, note or excluded")
        viewer.forget()
        names = list(dict.fromkeys("tags" if name in _LISTS else name for name in changes))
        before = annotations(viewer.frame(sweep.spec.name), numbers, names)
        viewer.store.annotate(sweep.id, numbers, **changes)
        viewer.forget()
        return {"changed": len(set(numbers)), "before": before}

    def request(given: Mapping[str, Any]) -> dict[str, Any]:
        sweep = viewer.sweep(_text(given, "sweep"))
        wanted = _text(given, "request")
        if wanted not in [one.value for one in Request]:
            raise UsageError(f"request '{wanted[:80]}' is not one of {', '.join(Request)}")
        viewer.store.request(sweep.id, Request(wanted))
        viewer.forget()
        return {"requested": wanted}

    def tag(given: Mapping[str, Any]) -> dict[str, Any]:
        names, changes = given.get("sweeps"), {name: given.get(name, []) for name in _LISTS[1:]}
        for what, texts in {"sweeps": names, **changes}.items():
            if not isinstance(texts, list) or not all(isinstance(one, str) for one in texts):
                raise UsageError(f"{what} must be a list of texts")
        ids = [viewer.sweep(name).id for name in names or []]
        if not 1 <= len(ids) <= MAX_NUMBERS:
            raise UsageError(f"{len(ids)} sweeps are named; give 1 to {MAX_NUMBERS}")
        viewer.store.tag_sweeps(ids, **changes)
        viewer.forget()
        return {"changed": len(set(ids))}

    return [post("/annotate", annotate), post("/tag", tag), post("/request", request)]


def annotations(frame: Frame, numbers: Sequence[int], names: Collection[str]) -> list[dict[str, Any]]:
    """Returns annotations of some trials, equal ones together: each is a change that brings the trials back to them.

    `names` are among "tags", "note" and "excluded". Numbers that no trial has are left out.
    """
    rows = frame.rows(sorted(set(numbers)))
    empty: Mapping[str, Any] = {"tags": (), "note": "", "excluded": False}
    columns = [[empty[name] if one is None else one for one in frame.columns[name].listed(rows)] for name in names]
    found: dict[tuple[Any, ...], list[int]] = {}
    for number, *values in zip(frame.numbers[rows].tolist(), *columns, strict=True):
        found.setdefault(tuple(values), []).append(number)
    return [{"numbers": same, **dict(zip(names, values, strict=True))} for values, same in found.items()]


def _text(given: Mapping[str, Any], name: str) -> str:
    value = given.get(name)
    if not isinstance(value, str):
        raise UsageError(f"{name} must be a text")
    return value
