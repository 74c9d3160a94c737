"""Transactions: decisions, the one replayed state, markers."""
