"""fencepost.broker.txn."""
