"""Steps that bring a database up to date, one file per step, run in order by alembic."""
