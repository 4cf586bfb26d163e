"""Define the records of measurements, the file that stores them, and their provenance."""
