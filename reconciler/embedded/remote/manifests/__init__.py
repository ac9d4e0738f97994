"""What names remote segments: registers, pages, swaps, garbage."""
