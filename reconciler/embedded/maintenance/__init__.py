"""Maintenance of an embedded cluster in `run`: upload, retention, roll, merge, compaction."""
