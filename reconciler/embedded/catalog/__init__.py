"""What a cluster knows of itself: namespaces, topics, links; and how a commit changes it."""
