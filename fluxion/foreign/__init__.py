"""A Fluxion service that is not ours, of which only Init, Match and Cancel are used."""
