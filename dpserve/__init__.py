"""The client of a dpserve service: `dpserve.client`. It needs httpx alone, and none of the rooms that it talks to."""

from dpserve.client import Client
from dpserve.errors import ServiceError

__all__ = ["Client", "ServiceError"]
