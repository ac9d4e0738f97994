"""What a user can declare: kinds, addresses, units, configs, capabilities."""
