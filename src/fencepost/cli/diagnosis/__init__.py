"""Diagnosis for commands and the page: facts with those about Spark sinks, and findings in words."""
