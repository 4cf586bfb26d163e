"""The dashboard: pages, charts and an API on the results. It reads files and never uses a GPU."""
