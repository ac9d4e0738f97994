"""The JSON that commands print, as models: what they say and what their schemas say cannot drift apart."""
