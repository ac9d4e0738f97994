"""The JSON that commands print, as pydantic models."""
