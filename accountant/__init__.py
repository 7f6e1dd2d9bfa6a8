"""What privacy costs and who spent it: prices, draws, filter, ledger, keys, certificates, audit. Imports none of the
other rooms.
"""
