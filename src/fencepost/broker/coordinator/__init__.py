"""The coordinators of transactions and of groups, over the internal topics."""
