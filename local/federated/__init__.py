"""Campaigns over NVFlare, for institutions that run a federation already: each is an owner with a ledger, a policy and
rows of its own. NVFlare carries bytes, no more: what is believed, charged and drawn is as over HTTPS.

`institution` and `asking` import nvflare (extra `federated`); nothing else of ours imports them.
"""
