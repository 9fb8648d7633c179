"""A neighbourhood of the graph becomes a drawing. Start reading at `drawing.draw`."""
