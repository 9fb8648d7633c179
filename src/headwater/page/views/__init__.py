"""The values of each page: one query, one template. Start reading at `pages`."""
