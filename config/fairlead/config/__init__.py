"""Settings of one instance: schema, loading, paths, and the shipped YAML files."""
