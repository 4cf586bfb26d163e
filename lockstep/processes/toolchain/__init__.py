"""Run a worker process with other versions of Triton or torch than the installed versions.

::

    toolchain = toolchain_of("triton==3.6.0")  # installed into the user's cache at first use
    Watched(module, arguments, silence_s, folders=toolchain.folders)
"""

from lockstep.processes.toolchain.model import INSTALLED, Toolchain
from lockstep.processes.toolchain.parse_toolchain import ToolchainError, UnknownToolchain, toolchain_of

__all__ = ["INSTALLED", "Toolchain", "ToolchainError", "UnknownToolchain", "toolchain_of"]
