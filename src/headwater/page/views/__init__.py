"""The views: each queries and returns a template with its values. Start reading at `view.View`."""
