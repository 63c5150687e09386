"""Our own journal, an agent like the others: `profile` says what there is of it."""
