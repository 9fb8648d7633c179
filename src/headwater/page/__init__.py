"""The graph and the state of the system in a browser, rendered by the server. Start reading at `app.Page`."""
