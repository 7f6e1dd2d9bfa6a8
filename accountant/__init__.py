"""What privacy costs and who spent it: prices, draws, filter, ledger, keys, certificates, audit. Imports none of the
other rooms.

    words         budget, events, names, records, errors, canonical
    prices        prices, adaptive, gdp, selection
    draws         mechanisms: the only noise there is
    admission     filter, families, steward, ledger, charges, forecast, figures, placement, tokens
    store         tables, store, engines, migrations, entry_index, search
    log           merkle, notes, proofs, log, highwater, growth, export, tiles
    witnesses     quorum, cosign, witness, witnessed
    keys          trust, keys, keyfiles, keyswap, keyindex, keyring, signers
    certificates  predicate, statement, derived, dsse, certificate, policy, plain, deployments
    audit         audit, rebuild, replay, replay_budget, replay_keys, judge, judge_models, definitions, index, shapes,
                  signed, signatures, checker, tile_audit: every price once more, by formulas of its own
    home          home: where all of it lies
"""
