"""The parts that all group kinds share: the interface of a kind, records, requests and deadlines."""
