"""Deterministic simulation of brokers, clients and the Spark sink, and checks of the recorded histories."""
