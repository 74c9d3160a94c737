"""Who lives in the simulated world: applications, readers, operators, each over the production client cores."""
