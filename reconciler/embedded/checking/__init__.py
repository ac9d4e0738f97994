"""`cluster check`: every register and object of a cluster looked at, judged, and mended where that is safe."""
