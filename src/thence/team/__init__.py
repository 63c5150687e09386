"""Team: one store for many machines (Postgres, an object store), and ways into it."""
