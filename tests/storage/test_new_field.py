"""A new field of trials is written once, beside its migration: it is stored, read, exported and shown everywhere."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from protein.envs_c import _native

ROOT = Path(__file__).parents[2]
SUPPORT = ROOT / "tests" / "support"
FIELD = "    mood: float = later(0.5)\n"
MIGRATION = """
import sqlalchemy as sa
from alembic import op

revision = "9000"
down_revision = "{before}"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("trials", sa.Column("mood", sa.Double(), nullable=False, server_default="0.5"))
"""


@pytest.mark.slow  # it runs a copy of the package
def test_a_new_field_needs_no_more_than_its_migration(tmp_path: Path) -> None:
    for name in ("protein", "storage", "envs_c"):
        shutil.copytree(ROOT / name, tmp_path / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(str(_native.__file__), tmp_path / "envs_c")
    for name in ("trainer", "configs"):
        (tmp_path / name).symlink_to(ROOT / name)
    types = tmp_path / "protein" / "types" / "trials.py"
    before = "    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)\n"
    assert types.read_text().count(before) == 1
    types.write_text(types.read_text().replace(before, before + FIELD))
    versions = tmp_path / "storage" / "migrations" / "versions"
    last = max(file.name[:4] for file in versions.glob("[0-9]*.py"))
    (versions / "9000_mood.py").write_text(MIGRATION.format(before=last))
    shutil.copy(ROOT / "tests" / "assets" / "storage_0006.db", tmp_path / "old.db")
    done = subprocess.run(
        [sys.executable, str(SUPPORT / "new_field.py"), "old.db"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(SUPPORT)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found.pop("text") == [["mood", "0.75"]]
    assert (found.pop("upgraded"), found.pop("earlier file"), found.pop("damages")) == ([0.5], 0.5, [])
    assert all(value in (0.75, [0.75]) for value in found.values()), found
    assert {"record", "columns", "table", "json", "data frame", "tracker", "jsonl", "parquet"} == found.keys()
