"""What time asks for: deletion, retention, rolling, compaction, keys, and the sweep."""
