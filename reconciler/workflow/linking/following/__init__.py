"""What a link keeps in step beside records: a pass over it, and each of its tasks."""
