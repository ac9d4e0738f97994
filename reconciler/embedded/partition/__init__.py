"""One partition in the store: its head, pages and parts; reading it, and the gate for whoever writes."""
