"""What is written to many partitions and becomes readable as one, or not at all."""
