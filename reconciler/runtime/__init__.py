"""Time, threads and words: what every layer leans on."""
