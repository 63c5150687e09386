"""thence: the session layer for coding agents.

Importing this package stays light: no database, no asyncio, no web framework. What is heavy is
imported by the command that needs it.
"""

from thence.errors import ThenceError

__all__ = ["ThenceError", "__version__"]

__version__ = "0.1.0"
