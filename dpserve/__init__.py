"""The client of a dpserve service: `dpserve.client`. It needs httpx alone, and none of the rooms that it talks to."""

from dpserve.client import Client as Client
from dpserve.errors import ServiceError as ServiceError

__all__ = ["Client", "ServiceError"]
