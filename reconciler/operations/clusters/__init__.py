"""Commands that read or change clusters without the files."""
