"""What tasks and their parts are called, on both sides. Imports nothing, and nothing of NVFlare."""

ANSWER, TAKEN = "dpserve-answer", "dpserve-taken"
CAMPAIGN, OFFER, INVITATION, BODY = "campaign", "offer", "invitation", "body"
SETTINGS = "owner.toml"  # in the `local` folder of an institution's workspace
ASKING, INSTITUTION = "training.federated.asking.AskInstitutions", "training.federated.institution.Institution"
