"""APIs of client telemetry (KIP-714)."""
