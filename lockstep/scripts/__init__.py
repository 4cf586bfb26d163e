"""Take the closures that other projects' benchmark scripts time, and measure them with this project's engine."""
