"""Plan nodes and RDDs become datasets: one visitor a kind, all through the door that extensions take."""
