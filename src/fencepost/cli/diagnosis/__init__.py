"""Diagnosis for commands and the web page: facts about the cluster and Spark sinks, and findings as text."""
