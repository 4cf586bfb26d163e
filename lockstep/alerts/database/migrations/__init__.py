"""Alembic's folder. Each module in ``versions/`` converts a database from one layout to the next."""
