"""Who may send: tokens, origins of pages, and the namespaces that a key may name."""
