"""Pictures of the dashboard's pages for the documentation."""
