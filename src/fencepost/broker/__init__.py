"""The broker: a pure core (`core.BrokerCore`), and the shell around it (`server.BrokerServer`)."""
