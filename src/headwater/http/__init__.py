"""HTTP/1.1 as the gateway, the graph and the page use it. Start reading at `connection`."""
