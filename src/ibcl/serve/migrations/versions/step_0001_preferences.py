"""Users' preferences and their history."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "preferences",
        sa.Column("user", sa.String(128), primary_key=True),
        sa.Column("weights", sa.Text, nullable=False),
        sa.Column("share_of_new_tasks", sa.Float),
        sa.Column("changed", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_table(
        "preference_history",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("user", sa.String(128), nullable=False),
        sa.Column("source", sa.String(16), nullable=False),
        sa.Column("weights", sa.Text, nullable=False),
        sa.Column("changed", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_index("preference_history_of_user", "preference_history", ["user", "id"])


def downgrade() -> None:
    """Remove them again."""
    op.drop_table("preference_history")
    op.drop_table("preferences")
