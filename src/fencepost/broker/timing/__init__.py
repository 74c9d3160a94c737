"""The broker's clock, timers and deadlines."""
