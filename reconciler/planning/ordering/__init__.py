"""What comes before what."""
