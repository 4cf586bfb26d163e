"""What programs read: JSON, feeds, badges, health and metrics. Nothing here writes."""
