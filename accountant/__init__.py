"""What privacy costs and who spent it: prices, draws, filter, ledger, keys, certificates, audit. Imports none of the
other rooms.

From the ground: errors, canonical, files, merkle, budget; then the folders `store`, `privacy`; mechanisms (the only
noise there is), `keys`; `log`; `ledger`; home (where all of it lies); `certificates`; `audit`.
"""
