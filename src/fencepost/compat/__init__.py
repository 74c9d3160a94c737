"""Classes with the interface of other Kafka clients, for programs that move to Fencepost by changing one import."""
