"""The network layer of all clients: connections, the view of a cluster, retries, the I/O thread."""
