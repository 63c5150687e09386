"""The proof: T1 to T16, each run at the numbers of a release, and one report of them all."""
