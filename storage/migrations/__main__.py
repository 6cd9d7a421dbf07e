"""Drafts the next migration from the difference between the tables and the migrations: for developers."""

import sys
import tempfile
from pathlib import Path

from alembic import command
from alembic.config import Config

from protein.storage.upgrade import HEAD, MIGRATIONS, migrate

from ..database import WRITE, create_engine, parse_url


def main(message: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        engine = create_engine(parse_url(str(Path(folder) / "draft.db")))
        with engine.execution_options(**WRITE).begin() as connection:
            migrate(connection)
        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
        with engine.execution_options(**WRITE).begin() as connection:
            config.attributes["connection"] = connection
            command.revision(config, message, autogenerate=True, rev_id=f"{int(HEAD) + 1:04}")
        engine.dispose()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit('usage: python -m protein.storage.migrations "what changes"')
    main(sys.argv[1])
