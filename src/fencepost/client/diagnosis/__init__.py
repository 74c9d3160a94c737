"""Diagnosis of a cluster: facts that its brokers report, and the findings that follow from them."""
