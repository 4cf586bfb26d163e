"""Alembic's folder: ``versions/`` takes a database from one layout to the next."""
