"""The truth: tasks, states, the store, locks, and the decision who is next."""
