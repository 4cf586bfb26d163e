"""Records of measurements, their file format and their provenance."""
