"""The truth suite: planted sessions with exact answers, for any tool that reads them."""
