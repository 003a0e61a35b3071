"""The network's side of a node: addresses, dialling, listening, connections and their limits."""
