"""Which tasks a preference was stored for, apart from their names."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table of the versions' tasks, and the column of a preference's."""
    op.create_table(
        "lineage",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("version", sa.String(64), nullable=False, unique=True),
        sa.Column("identities", sa.Text, nullable=False),
    )
    op.add_column("preferences", sa.Column("identities", sa.Text))


def downgrade() -> None:
    """Remove them again."""
    with op.batch_alter_table("preferences") as table:
        table.drop_column("identities")
    op.drop_table("lineage")
