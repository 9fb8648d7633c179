"""Draws a neighbourhood of the graph as SVG. Start reading at `drawing.draw`."""
