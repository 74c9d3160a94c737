"""APIs of share groups (KIP-932): fetch, acknowledge, and positions."""
