"""What the files want, effective: policies compiled, namespaces implied, mirrors derived."""
