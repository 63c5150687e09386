"""Memory: what is kept of sessions, and how it is found again."""
