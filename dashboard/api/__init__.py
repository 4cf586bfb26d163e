"""Read-only interface for programs: JSON, feeds, health and metrics."""
