"""Client telemetry (KIP-714): a client pushes its metrics to brokers that request them."""
