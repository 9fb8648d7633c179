"""Stage 6: lineage events become a graph of jobs, runs, datasets and columns."""
