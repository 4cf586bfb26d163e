"""What one measurement says: the record, its file format and its provenance."""
