"""Results as HTML pages: self-contained files."""
