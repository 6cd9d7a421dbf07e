"""A store for commands that treat sweeps as wholes: export and import, check, rename and remove."""

from collections.abc import Collection, Iterable, Iterator, Sequence

from sqlalchemy import delete, select, update

from protein.errors import StoreError
from protein.types import Artifact, Machine

from . import check, rows, transfer, values
from .store import SqlStore
from .tables import MAX_NAME_LENGTH, AnnotationRow, ArtifactRow, MeasurementRow, SweepRow, TrialRow

PART = 2000  # trials whose rows are deleted, or whose artifacts are changed, in one statement


class WholeStore(SqlStore):
    """A store in a SQLite file or a PostgreSQL database; `storage.open_whole_store` is the way to one."""

    @property
    def shown(self) -> str:
        """How messages name the store, without a password."""
        return self._shown

    def read_sweeps(self, sweep_ids: Collection[int]) -> Iterator[transfer.Item]:
        """Yields sweeps with all their rows, as they are at one moment. Raises `StoreError` at a damaged value."""
        with self._reading() as session:
            yield from transfer.read(session, sweep_ids)

    def write_sweeps(
        self, items: Iterable[transfer.Item], progress: transfer.Progress, machines: Sequence[Machine] = ()
    ) -> list[tuple[str, int, int]]:
        """Stores sweeps as new ones, all of them or none.

        Args:
            items: what `read_sweeps` of another store yields, or a file.
            progress: told how many trials of a sweep are stored, and of how many.
            machines: that are stored with them, behind those that this store knows. A name that it knows stays.

        Returns:
            Of each sweep the name, and how many trials and curve points it has.

        Raises:
            StoreError: a sweep of this name exists, or a value cannot be stored.
        """
        with self._transaction(self._write_engine) as session:
            for machine in machines:
                self._insert_machine(session, machine)
            return transfer.write(session, items, self._shown, progress)

    def damages(self, progress: transfer.Progress) -> Iterator[check.Damage]:
        """Yields everything that is wrong with the stored values; see `protein.storage.check`."""
        with self._one_moment(), self._transaction(self._read_engine) as session:
            yield from check.damages(session, progress)

    def rename_sweep(self, old: str, new: str, artifacts: Iterable[tuple[int, Artifact, str]] = ()) -> None:
        """Renames a sweep, and changes where its files are.

        Args:
            old: name of the sweep.
            new: its new name.
            artifacts: of each file that moves the trial's number, the artifact as it is stored, and its new path.

        Raises:
            StoreError: there is no such sweep, or one that has the new name.
        """
        if not 1 <= len(values.text("sweep name", new)) <= MAX_NAME_LENGTH:
            raise StoreError(f"sweep name of {len(new)} characters: 1 to {MAX_NAME_LENGTH} are allowed; give another")
        with self._transaction(self._write_engine) as session:
            sweep_id = session.scalar(select(SweepRow.id).where(SweepRow.name == old))
            if sweep_id is None:
                raise StoreError(f"there is no sweep '{old}' in {self._shown}; nothing was renamed")
            if session.scalar(select(SweepRow.id).where(SweepRow.name == new)) is not None:
                raise StoreError(f"sweep '{new}' exists already in {self._shown}; give another name")
            session.execute(update(SweepRow).where(SweepRow.id == sweep_id).values(name=new))
            mine = select(TrialRow.number, TrialRow.id).where(TrialRow.sweep_id == sweep_id)
            ids = dict(session.execute(mine).all())
            a = ArtifactRow
            for number, artifact, path in artifacts:
                rows.check_artifact(artifact.kind, path, f"trial {number}")
                same = (a.trial_id == ids[number], a.kind == artifact.kind, a.path == artifact.path)
                session.execute(update(a).where(*same).values(path=path))

    def remove_sweep(self, sweep_id: int) -> None:
        """Deletes a sweep with everything of it. Raises `StoreError` where there is none."""
        with self._transaction(self._write_engine) as session:
            self._lock_sweep(session, sweep_id)
            ids = session.scalars(select(TrialRow.id).where(TrialRow.sweep_id == sweep_id)).all()
            for first in range(0, len(ids), PART):
                part = ids[first : first + PART]
                for kind in (MeasurementRow, ArtifactRow, AnnotationRow):
                    session.execute(delete(kind).where(kind.trial_id.in_(part)))
                session.execute(delete(TrialRow).where(TrialRow.id.in_(part)))
            session.execute(delete(SweepRow).where(SweepRow.id == sweep_id))

    def forget_artifacts(self, sweep_id: int, freed: Iterable[tuple[int, Artifact]]) -> None:
        """Deletes the entries of files that are there no more: of each the trial's number, and the artifact."""
        with self._transaction(self._write_engine) as session:
            mine = select(TrialRow.number, TrialRow.id).where(TrialRow.sweep_id == sweep_id)
            ids = dict(session.execute(mine).all())
            a = ArtifactRow
            for number, artifact in freed:
                same = (a.trial_id == ids[number], a.kind == artifact.kind, a.path == artifact.path)
                session.execute(delete(a).where(*same))
