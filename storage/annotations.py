"""Changes the annotations of trials: tags, notes, exclusions. The sweep's row is locked, so revisions have an order."""

import dataclasses
import unicodedata
from collections.abc import Collection, Sequence

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from protein.errors import StoreError
from protein.types import MAX_NOTE_LENGTH, MAX_TAG_LENGTH, MAX_TAGS, Annotation

from . import values
from .tables import AnnotationRow, TrialRow

_PART = 500  # trials that are asked for in one query


def checked_tags(tags: Sequence[str]) -> list[str]:
    """Returns tags without spaces around them, each once. Raises `StoreError` for one that cannot be a tag."""
    found = [" ".join(values.text("tag", tag).split()) for tag in tags]
    for tag in found:
        if not 1 <= len(tag) <= MAX_TAG_LENGTH or not tag.isprintable():
            raise StoreError(
                f"tag {tag!r:.80} cannot be stored: a tag has 1 to {MAX_TAG_LENGTH} printable characters; give another"
            )
    return list(dict.fromkeys(found))


def checked_note(note: str) -> str:
    """Returns a note that can be stored. Raises `StoreError` where it is too long, or could steer a terminal."""
    if len(values.text("note", note)) > MAX_NOTE_LENGTH:
        raise StoreError(f"a note has at most {MAX_NOTE_LENGTH} characters, got {len(note)}; shorten it")
    for character in note:
        if unicodedata.category(character) == "Cc" and character not in "\n\t":
            raise StoreError(f"a note cannot hold the control character {character!r}; leave it out")
    return note


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What changes in a trial's annotations; see `protein.ports.Store.annotate`. Tags and note were checked."""

    tags: list[str] | None
    add_tags: list[str]
    remove_tags: list[str]
    note: str | None
    excluded: bool | None


def annotate(session: Session, sweep_id: int, numbers: Collection[int], change: Change) -> None:
    """Changes the annotations of trials; the sweep's row is locked.

    Raises:
        StoreError: a trial does not exist, or would have too many tags.
    """
    wanted = values.trial_numbers(numbers)
    for number in set(numbers).difference(wanted):
        raise StoreError(f"the sweep has no trial {number:.6g}, so nothing was changed; protein show lists its trials")
    ids: dict[int, int] = {}
    rows: dict[int, AnnotationRow] = {}
    for first in range(0, len(wanted), _PART):
        mine = (TrialRow.sweep_id == sweep_id, TrialRow.number.in_(wanted[first : first + _PART]))
        ids |= dict(session.execute(select(TrialRow.number, TrialRow.id).where(*mine)).all())
        joined = select(AnnotationRow).join(TrialRow, TrialRow.id == AnnotationRow.trial_id)
        rows |= {row.trial_id: row for row in session.scalars(joined.where(*mine))}
    for number in wanted:
        if number not in ids:
            raise StoreError(f"the sweep has no trial {number}, so nothing was changed; protein show lists its trials")
    newest = select(func.max(AnnotationRow.revision)).where(AnnotationRow.sweep_id == sweep_id)
    for revision, number in enumerate(wanted, start=(session.scalar(newest) or 0) + 1):
        row = rows.get(ids[number])
        if row is None:
            row = AnnotationRow(trial_id=ids[number], sweep_id=sweep_id, tags=[], note="", excluded=False)
            session.add(row)
        kept = [*(row.tags if change.tags is None else change.tags), *change.add_tags]
        row.tags = list(dict.fromkeys(tag for tag in kept if tag not in change.remove_tags))
        if len(row.tags) > MAX_TAGS:
            raise StoreError(
                f"trial {number} would have {len(row.tags)} tags, and {MAX_TAGS} are the most, so nothing was changed;"
                " remove some"
            )
        row.note = row.note if change.note is None else change.note
        row.excluded = row.excluded if change.excluded is None else change.excluded
        row.revision = revision


def read(session: Session, *wheres: ColumnElement[bool]) -> dict[int, Annotation]:
    """Returns the annotations of trials by the trial's id; `wheres` are conditions on `TrialRow`."""
    row = AnnotationRow
    query = select(row.trial_id, row.tags, row.note, row.excluded).join(TrialRow, TrialRow.id == row.trial_id)
    return {
        key: Annotation(tags=tuple(tags), note=note, excluded=excluded)
        for key, tags, note, excluded in session.execute(query.where(*wheres))
    }
