"""What alembic runs for every migration: on the connection it is given."""

from alembic import context

from ibcl.serve.database import metadata

# Whoever merely imports this, such as a test runner, has no migration under way.
if hasattr(context, "config"):
    context.configure(
        connection=context.config.attributes["connection"],
        target_metadata=metadata,
        render_as_batch=True,
    )
    with context.begin_transaction():
        context.run_migrations()
