"""The fault trials T1 to T16, each run as often as a release requires, and one report on all."""
