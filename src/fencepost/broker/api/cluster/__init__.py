"""APIs of the cluster, its settings and features."""
