"""A message: addresses, headers, typed properties and their conversions, bodies, the envelope, outcomes."""
