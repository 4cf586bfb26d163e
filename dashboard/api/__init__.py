"""Read-only interface for programs: JSON, feeds, badges, health and metrics."""
