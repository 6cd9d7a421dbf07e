"""${message}

Follows ${down_revision}. Raise `storage.upgrade.HEAD` to ${up_revision} with it.
"""

import sqlalchemy as sa
from alembic import op

${imports if imports else ""}
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = None
depends_on = None


def upgrade() -> None:
    ${upgrades if upgrades else "pass"}
