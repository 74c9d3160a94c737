"""Client telemetry (KIP-714): a client pushes its metrics to the brokers that ask for them."""
