"""Writes two projects into $TRACKIO_DIR, and their Parquet files; then makes the databases smaller."""

import contextlib
import math
import sqlite3

from trackio.sqlite_storage import TRACKIO_DIR, SQLiteStorage

for project in ("digits", "other"):
    for i in range(4):
        losses = [1.0, 0.5, math.nan if i == 3 else 0.25 * i]
        SQLiteStorage.bulk_log(
            project=project,
            run=f"run {i}",
            run_id=f"id{i}",
            metrics_list=[{"loss": loss, "eval": {"acc": 0.1}} for loss in losses],
            steps=[0, 10, 20],
            timestamps=[f"2026-11-29T10:00:0{second}+00:00" for second in (1, 2, 4 + i)],
            config={"lr": 10.0**-i, "net": {"layers": i}, "_Created": "2026-11-29T10:00:00+00:00", "_Group": "g"},
        )
SQLiteStorage.export_to_parquet()
for path in TRACKIO_DIR.glob("*.db"):
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for line in ("pragma journal_mode = delete", "pragma page_size = 512", "vacuum"):
            connection.execute(line)
