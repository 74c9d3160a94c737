"""The wire, and what every client needs of it: connections, the view of a cluster, retries, the I/O thread."""
