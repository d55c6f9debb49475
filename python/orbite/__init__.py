# SPDX-License-Identifier: Apache-2.0
"""OrbiTE from Python: memory that engines of this host can share, and where the library is.

Transfers are made through NIXL's own API; nothing here creates an engine.
"""

from orbite._library import OrbiteError, info, plugin_dir
from orbite.shared_memory import SharedMemory

__all__ = ["OrbiteError", "SharedMemory", "info", "plugin_dir"]
