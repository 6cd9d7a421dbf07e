"""Runs migrations on the connection that `storage.upgrade` hands over, inside its transaction."""

from typing import Any, Literal

from alembic import context

from protein.storage.tables import Base, Utc
from protein.storage.upgrade import VERSION_TABLE


def _render(kind: str, item: Any, _context: Any) -> str | Literal[False]:
    """Writes our own column type as the plain one that it wraps: an old migration must not depend on today's code."""
    return "sa.DateTime(timezone=True)" if kind == "type" and isinstance(item, Utc) else False


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    version_table=VERSION_TABLE,
    render_as_batch=True,  # SQLite alters a table by rebuilding it
    compare_type=True,
    render_item=_render,
)
context.run_migrations()
