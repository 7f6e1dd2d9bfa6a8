"""Rows whose partitions other hosts ask, by Dask: the manifest, the hosts' side, and the driver's."""
