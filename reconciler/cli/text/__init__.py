"""What commands print for people: text, markdown and reports."""
