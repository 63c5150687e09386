"""aider: `profile` says what there is of it; the rest is loaded when somebody asks for it."""
