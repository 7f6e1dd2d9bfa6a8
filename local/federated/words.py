"""What tasks and their parts are called, on both sides. Imports nothing, and nothing of NVFlare."""

SEEN, ANSWER, TAKEN = "dpserve-seen", "dpserve-answer", "dpserve-taken"
ROUNDS = "dpserve-rounds"  # the task of an institution's whole program
ASK, PATH, STATUS = "dpserve-ask", "path", "status"  # what that program asks the server, and how it is answered
CAMPAIGN, OFFER, INVITATION, BODY = "campaign", "offer", "invitation", "body"
SIZE, WITNESSED = "size", "witnessed"  # of the ledger's last checkpoint kept there; whether it has witnesses
SETTINGS, OF_ROUNDS = "owner.toml", "institution.toml"  # in the `local` folder of an institution's workspace
ASKING, INSTITUTION = "local.federated.asking.AskInstitutions", "local.federated.institution.Institution"
