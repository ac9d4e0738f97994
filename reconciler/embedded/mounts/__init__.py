"""Mount topics from object storage, unmount and recover topics."""
