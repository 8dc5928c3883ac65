"""Tokens, the service's own choices, and what was inferred of each user."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables, and the column of the posterior's counts."""
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("user", sa.String(128)),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_table(
        "choices",
        sa.Column("name", sa.String(32), primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
    op.add_column("preferences", sa.Column("counts", sa.Text))


def downgrade() -> None:
    """Remove them again."""
    with op.batch_alter_table("preferences") as table:
        table.drop_column("counts")
    op.drop_table("choices")
    op.drop_table("tokens")
