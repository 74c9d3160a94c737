"""Connections: admission, sockets, TLS, and back-pressure."""
