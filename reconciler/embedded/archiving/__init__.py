"""Topics of other platforms in object storage, as an unmount leaves those of embedded clusters: written and read."""
