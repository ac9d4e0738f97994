"""What `run` does to an embedded cluster: upload, retention, roll, merge, compact."""
