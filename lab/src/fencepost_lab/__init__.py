"""The laboratory: simulation, torture, checks of histories, benchmarks and the demo, on top of `fencepost`."""
