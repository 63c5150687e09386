"""Other people's session interfaces, and sessions that change agents."""
