"""Connections: who may have one, what they bring, what waits to be sent."""
