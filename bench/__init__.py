"""Side-by-side benchmarks; every figure in the README comes from here."""
