"""The client of a dpserve service, `dpserve.client`, which needs httpx alone; and `dpserve.learners` for notebooks."""

from dpserve.client import Client
from dpserve.errors import ServiceError

__all__ = ["Client", "ServiceError"]
