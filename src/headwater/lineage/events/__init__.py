"""A run becomes an event: its builders are asked, its datasets, columns and facets put together, in time."""
