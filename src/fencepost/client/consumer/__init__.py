"""The consumer's core: subscription, positions, fetching."""
