"""Steps that bring a database up to date, one file a step, run in order by alembic."""
