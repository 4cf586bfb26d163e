"""Alembic's entry: runs on the connection that ``dashboard.alerts.database`` hands over, inside its transaction."""

from alembic import context

from dashboard.alerts.schema import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    render_as_batch=True,
    # SQLite can roll back DDL; Alembic assumes that it cannot.
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
