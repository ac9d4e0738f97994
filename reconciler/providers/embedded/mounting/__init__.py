"""Topics mounted and unmounted by plans, and migrations as the mount commands see them."""
